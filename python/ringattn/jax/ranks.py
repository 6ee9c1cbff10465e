"""The ranks of JAX programs: devices of this process, each with a comm, and plans kept by what they compute."""
from __future__ import annotations

import atexit
from collections import OrderedDict
import functools
import json
import os
import threading
import time
from typing import Any, Dict, List, Tuple

from ..comm import Comm
from ..errors import ArgumentError, MismatchError
from ..plan import Plan
from ..problem import Dilated, Problem
from . import _ffi

FORWARD, BACKWARD = "ringattn_attention", "ringattn_attention_backward"
PLANS_KEPT = 64


class _Rank:
    """One device's end: used by one call at a time."""

    def __init__(self, group: "_Group", comm: Comm) -> None:
        self.group, self.comm = group, comm
        self.lock = threading.Lock()
        self.calls = 0
        self.plans: "OrderedDict[Tuple, Plan]" = OrderedDict()

    def plan(self, key: Tuple, what: Dict[str, Any], device: Tuple[str, int]) -> Plan:
        """The plan kept for this call. Every rank asks in the same order, so all keep the same ones."""
        if key in self.plans:
            self.plans.move_to_end(key)
            return self.plans[key]
        threads = max(1, (os.cpu_count() or 1) // self.comm.ranks)
        made = Plan(self.comm, what["problem"], layout=what["layout"], strategy=what["strategy"],
                    backward=key[1] == b"yes", threads=threads, timeout=what["timeout"], device=device)
        self.plans[key] = made
        while len(self.plans) > PLANS_KEPT:
            self.plans.popitem(last=False)[1].close()
        return made


class _Group:
    """Ranks that share a sequence. Checks that they make the same calls in the same order."""

    def __init__(self, count: int) -> None:
        self.ranks = [_Rank(self, comm) for comm in (Comm.threads(count) if count > 1 else [Comm.single()])]
        self.lock = threading.Lock()
        self.expected: Dict[int, List[Any]] = {}  # number of a call: what it is, and how many ranks have made it

    def enter(self, rank: _Rank, call: Tuple) -> None:
        with self.lock:
            entry = self.expected.setdefault(rank.calls, [call, 0])
            entry[1] += 1
            if entry[1] == len(self.ranks):
                del self.expected[rank.calls]
        rank.calls += 1
        if entry[0] != call:
            raise MismatchError("the devices make different calls of ringattn.jax.attention at a time; let each call "
                                "need a result of the one before")


_groups: Dict[Tuple, _Group] = {}
_groups_lock = threading.Lock()


def _rank_of(platform: str, groups: Tuple[Tuple[int, ...], ...], ordinal: int) -> Tuple[Tuple, _Rank]:
    """This device's rank, in the group that has it; a device of no group is alone."""
    members = next((group for group in groups if ordinal in group), None)
    if members is None and groups:
        raise ArgumentError(f"{platform} device {ordinal} is none of the mesh's: {groups}")
    members = members or (ordinal,)
    key = (platform, members)
    with _groups_lock:
        if key not in _groups:
            _groups[key] = _Group(len(members))
        return key, _groups[key].ranks[members.index(ordinal)]


@functools.lru_cache(maxsize=256)
def _parse(text: bytes) -> Dict[str, Any]:
    what = json.loads(text)
    problem = what["problem"]
    if problem["dilated"] is not None:
        branches, *how = problem["dilated"]
        problem["dilated"] = Dilated(tuple(map(tuple, branches)), *how)
    what["problem"] = Problem(**problem)
    what["groups"] = tuple(map(tuple, what["groups"]))
    return what


def _run(platform: str, backward: bool, call: _ffi.Call) -> None:
    texts = call.texts()
    what = _parse(texts["what"])
    ordinal = call.ordinal()
    group_key, rank = _rank_of(platform, what["groups"], ordinal)
    key = (texts["what"], texts["training"])
    with rank.lock:
        try:
            rank.group.enter(rank, (*key, backward))
            plan = rank.plan(key, what, (platform, ordinal if platform == "cuda" else 0))
            stream = call.stream() if platform == "cuda" else None
            if backward:
                dout, q, k, v, o, lse = call.arguments
                plan.backward_at(q, k, v, o, lse, dout, *call.results, stream=stream)
            else:
                plan.forward_at(*call.arguments, *call.results, stream=stream)
        except BaseException:
            _forget(group_key, rank)
            raise


def _forget(key: Tuple, rank: _Rank) -> None:
    """After a failure: this rank's end is closed, which the others learn; the next call begins with new ranks."""
    with _groups_lock:
        if _groups.get(key) is rank.group:
            del _groups[key]
    rank.plans.clear()
    rank.comm.close()


def _under_way() -> bool:
    """Whether a device is inside a call, or has still to make one that others of its group have made."""
    with _groups_lock:
        groups = list(_groups.values())
    return any(group.expected or any(rank.lock.locked() for rank in group.ranks) for group in groups)


def _finish() -> None:
    """Before the interpreter ends: waits for calls, since JAX waits for no result that nobody has asked for. A thread
    of XLA's that came to Python later would be ended by Python in the middle of its work, and JAX's own end would wait
    for it for ever."""
    import jax

    for array in jax.live_arrays():
        try:
            array.block_until_ready()
        except Exception:  # deleted, or failed: that is not for the end of a program to tell
            pass
    # For results that are gone; the calls' deadline ends it. The last call has the sleep to return to XLA in.
    busy = True
    while busy:
        busy = _under_way()
        time.sleep(0.01)


@functools.lru_cache(maxsize=None)
def register() -> List[Any]:
    """Makes the foreign functions known to JAX, once. The result keeps them alive."""
    import jax

    atexit.register(_finish)  # after JAX's own, so that it is called before them
    kept = []
    for name, backward in ((FORWARD, False), (BACKWARD, True)):
        for platform, known_as in (("cpu", "cpu"), ("cuda", "CUDA")):
            handler = _ffi.handler(functools.partial(_run, platform, backward))
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform=known_as)
            kept.append(handler)
    return kept
