"""Context: the ranks that a sequence is cut over, as one of them sees it, with the plans they have made.

connect.py makes them. Operators name one by a number, which graphs can hold.
"""
from __future__ import annotations

from collections import OrderedDict
import itertools
import os
import threading
from typing import Any, Dict, Hashable, List, NoReturn, Optional, Tuple
import weakref

import torch
import torch.distributed as dist

from ..comm import Comm
from ..errors import ArgumentError, PeerError, PeerTimeoutError, TransportError
from ..layout import layout_rows
from ..plan import Plan, predict
from ..problem import Problem, choice
from .. import _capi, _library
from .graphs import outside_graphs
from .positions import kept_positions

PLANS_KEPT = 64

_contexts: "Dict[int, weakref.ref[Context]]" = {}
_numbers = itertools.count(1)
_current = threading.local()
_default: List["Context"] = []
_of_group: "Dict[Any, Context]" = {}
_held: List[Any] = []  # workspaces that a lost comm may still write to


class Context:
    """One rank's end of a cut sequence: rank, ranks, layout; and what the batch at hand is: seq_len, cu_seqlens."""

    def __init__(self, comm: Comm, group: Optional[Any] = None, layout: str = "auto", strategy: str = "auto",
                 timeout: float = 60, threads: int = 1) -> None:
        choice("layout", layout, _capi.LAYOUTS)
        choice("strategy", strategy, _capi.STRATEGIES)
        self.comm, self.group = comm, group
        self.rank, self.ranks = comm.rank, comm.ranks
        # Shards are cut before a problem is known, so auto is what balances causal attention and costs others nothing.
        self.layout = "zigzag" if layout == "auto" else layout
        self.strategy, self.timeout, self.threads = strategy, timeout, threads
        self.seq_len = None
        self.cu_seqlens: Optional[torch.Tensor] = None
        # ringattn.hf's: offsets it has compared, how often they were written to, and the layer that asked last.
        self.agreed: Optional[Tuple[List[torch.Tensor], List[Optional[int]], Optional[int]]] = None
        self.number = next(_numbers)
        self._plans: "OrderedDict[Hashable, Plan]" = OrderedDict()
        self._workspaces: Dict[Any, torch.Tensor] = {}
        self._device_comms: Dict[int, Comm] = {}
        self._last_plans: Dict[torch.device, Plan] = {}
        self._siblings: Dict[str, "Context"] = {self.layout: self}
        self.turn = threading.Lock()  # held by the thread whose call runs: a comm runs one at a time
        _contexts[self.number] = weakref.ref(self, lambda _, number=self.number: _contexts.pop(number, None))

    def with_layout(self, layout: str) -> "Context":
        """The same ranks with rows laid out otherwise: one and the same object each time."""
        if layout not in self._siblings:
            self._make_sibling(layout)
        return self._siblings[layout]

    @outside_graphs
    def _make_sibling(self, layout: str) -> None:
        made = Context(self.comm, self.group, layout, self.strategy, self.timeout, self.threads)
        made._siblings, made._workspaces, made._device_comms = self._siblings, self._workspaces, self._device_comms
        made.turn = self.turn
        self._siblings[layout] = made

    # ---- rows

    @property
    def seq_len(self) -> Optional[int]:
        """The length of the batch at hand."""
        return self._seq_len

    @seq_len.setter
    def seq_len(self, n: Optional[int]) -> None:
        self._seq_len = n
        self._sizes = None if n is None else torch.zeros((), device="cpu").expand(n, self.rows(n))

    def sizes(self) -> Tuple[Optional[int], int]:
        """(the length of the batch at hand, this rank's rows of it); (None, 0) where it is not known. From the shape of
        a tensor without memory of its own: graphs have no calls of the library, and take the numbers of an object that
        is found through a module for fixed, but not the shapes of its tensors."""
        return (None, 0) if self._sizes is None else tuple(self._sizes.shape)

    def rows(self, n: int) -> int:
        """How many of n positions this rank has."""
        return layout_rows(self.layout, n, self.ranks, self.rank)

    def positions(self, n: int, device: Optional[Any] = None) -> torch.Tensor:
        """[rows] int64: which of n positions this rank has, increasing. In layout "documents" those of the documents of
        the batch at hand, which shard_batch has set, or of one document."""
        return positions_of(self, n, self.rank, device, self.cut_by())

    def cut_by(self) -> Optional[torch.Tensor]:
        """What the cut of the batch at hand depends on beside its length: its documents, in layout "documents"."""
        return self.cu_seqlens if self.layout == "documents" else None

    def documents(self, n: int, cut_by: Optional[torch.Tensor]) -> Optional[Tuple[int, ...]]:
        """The documents that positions of a sequence of n depend on: None in all layouts but "documents"; one document
        where those of cut_by are of another sequence."""
        if self.layout != "documents":
            return None
        cu = None if cut_by is None else tuple(cut_by.tolist())
        return cu if cu is not None and cu[-1] == n else (0, n)

    # ---- exchanges outside of a plan

    def gather(self, mine: torch.Tensor) -> List[torch.Tensor]:
        """Collective: everyone's tensor of one shape, in rank order."""
        mine = mine.contiguous()
        if self.ranks == 1:
            return [mine]
        if self.group is not None:
            gathered = [torch.empty_like(mine) for _ in range(self.ranks)]
            dist.all_gather(gathered, mine, group=self.group)
            return gathered
        if mine.numel() == 0:
            return [mine] * self.ranks
        blocks = self.comm.allgather(_bytes_of(mine.cpu()), self.timeout)
        return [torch.frombuffer(bytearray(block), dtype=torch.uint8).view(mine.dtype).view(mine.shape).to(mine.device)
                for block in blocks]

    def sequence_length(self, rows: int) -> int:
        """Collective: the length of a sequence of which this rank has so many rows."""
        if self.ranks == 1:
            return rows
        device = _gather_device(self)
        counts = [int(x) for x in self.gather(torch.tensor([rows], dtype=torch.int64, device=device))]
        n = sum(counts)
        for rank, count in enumerate(counts):
            if n and layout_rows(self.layout, n, self.ranks, rank) != count:
                raise ArgumentError(f"the ranks have {counts} rows, which is no {self.layout} layout of {n}")
        return n

    # ---- plans

    def take_turn(self) -> None:
        """Before a call, which releases `turn` at its end. With one rank other threads wait. With several the order of
        two threads' calls would be another on every rank, so the second is refused."""
        if not self.turn.acquire(self.ranks == 1):
            raise ArgumentError("another thread is inside a call of this context; calls of several ranks come in one "
                                "order on all of them: make them from one thread, or give each thread a context of its "
                                "own (ringattn.torch.init)")

    def kept(self, key: Hashable) -> Optional[Plan]:
        """The plan that was made under key, unless it was evicted."""
        found = self._plans.get(key)
        if found is not None:
            self._plans.move_to_end(key)
        return found

    def plan(self, key: Hashable, problem: Problem, training: bool, device: torch.device) -> Plan:
        """A new plan, kept under key. Collective: every rank asks in the same order, so all evict the same."""
        options: Dict[str, Any] = {"layout": self.layout, "strategy": self.strategy, "backward": training,
                                   "threads": self.threads, "device": _device_name(device)}
        planned = predict(problem, self.ranks, self.rank, **options)
        memory = self._workspace(device, planned.workspace_bytes)
        plan = Plan(self._comm_for(device), problem, timeout=self.timeout,
                    workspace=(memory.data_ptr(), memory.numel()), **options)
        plan.memory = memory
        self._plans[key] = plan
        while len(self._plans) > PLANS_KEPT:
            self._forget(self._plans.popitem(last=False)[1])
        return plan

    def _forget(self, plan: Plan) -> None:
        plan.close()
        plan.memory = None
        for device in [device for device, last in self._last_plans.items() if last is plan]:
            del self._last_plans[device]

    def _workspace(self, device: torch.device, size: int) -> torch.Tensor:
        """Memory of torch's that all plans on a device share: a comm runs one at a time. Collective.

        When any rank needs more, all forget their plans, which would hold the smaller memory each: lengths that grow
        with every step would make it as many times as much as there are plans.
        """
        memory = self._workspaces.get(device)
        if self._on_any_rank(memory is None or memory.numel() < size):
            for sibling in list(self._siblings.values()):
                sibling._forget_all(device)
        if memory is None or memory.numel() < size:
            self._workspaces.pop(device, None)
            del memory  # before there is more
            memory = self._workspaces[device] = torch.empty(max(size, 64), dtype=torch.uint8, device=device)
        return memory

    def _on_any_rank(self, here: bool) -> bool:
        """Collective: whether it is so on any of the ranks."""
        if self.ranks == 1:
            return here
        return any(map(any, self.comm.allgather(bytes([here]), self.timeout)))

    def _forget_all(self, device: torch.device) -> None:
        for key in [key for key, plan in self._plans.items() if plan.memory.device == device]:
            self._forget(self._plans.pop(key))

    def _comm_for(self, device: torch.device) -> Comm:
        """The comm itself, or on a GPU, for ranks that are processes, one over NCCL where the library has it."""
        cuda = _library.cuda() if device.type == "cuda" else None
        if cuda is None or self.ranks == 1 or self.comm.transport == "thread" or not cuda.ra_cuda_has_nccl():
            return self.comm
        ordinal = device.index or 0
        if ordinal not in self._device_comms:
            self._device_comms[ordinal] = Comm.nccl(self.comm, ordinal, self.timeout)
        return self._device_comms[ordinal]

    def wait(self) -> None:
        """Waits for the attention that is on the current streams of this context's devices, and raises where it failed.

        Over NCCL a peer that has died leaves a stream waiting for ever, and torch.cuda.synchronize() with it. This call
        ends by the timeout and raises. On the CPU, and with one rank, there is nothing to wait for that could fail so.
        """
        for sibling in list(self._siblings.values()):
            for device, plan in list(sibling._last_plans.items()):
                try:
                    plan.wait(torch.cuda.current_stream(device).cuda_stream)
                except LOST:
                    self.lost()
                    raise

    def ran(self, plan: Plan, device: torch.device) -> None:
        """Remembers, for wait(), which plan of several ranks was the last to put work on a device."""
        if device.type == "cuda":
            self._last_plans[device] = plan

    def lost(self) -> None:
        """A comm was lost: messages may still arrive in what its plans work with, so that stays until the process
        ends."""
        _held.extend(self._workspaces.values())

    def close(self) -> None:
        """Ends plans and comms, also of siblings. Ranks that are processes close together."""
        for sibling in list(self._siblings.values()):
            sibling._last_plans.clear()
            sibling._plans.clear()
            sibling.group = None  # torch ends it when nobody has it any more
        for comm in self._device_comms.values():
            comm.close()
        self.comm.close()
        self._workspaces.clear()
        if self in _default:
            _default.remove(self)
        for group in [group for group, ctx in _of_group.items() if ctx is self]:
            del _of_group[group]

    def __deepcopy__(self, _memory: Dict[int, Any]) -> "Context":
        """A copy of a module works with the same ranks."""
        return self

    def __copy__(self) -> "Context":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ringattn.torch.Context is a process's connection to others and cannot be pickled; save the "
                        "module's state_dict(), or leave ctx out of the module, which then takes the current context")

    def __repr__(self) -> str:
        return f"<ringattn.torch.Context rank {self.rank} of {self.ranks}, {self.comm.transport}, {self.layout}>"


def _free_turns() -> None:
    """In a child of fork() no other thread is inside a call, whatever there was in the parent."""
    for found in list(_contexts.values()):
        ctx = found()
        if ctx is not None:
            ctx.turn._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_turns)

LOST = (PeerError, PeerTimeoutError, TransportError)


def _bytes_of(x: torch.Tensor) -> bytes:
    return x.view(-1).view(torch.uint8).numpy().tobytes()


def _gather_device(ctx: Context) -> torch.device:
    """Where the group's collectives take tensors."""
    if ctx.group is not None and dist.get_backend(ctx.group) == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _device_name(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"


def positions_of(ctx: Context, n: int, rank: int, device: Optional[Any],
                 cut_by: Optional[torch.Tensor]) -> torch.Tensor:
    """[rows] int64: the positions of any rank; cut_by as Context.cut_by gave it for the batch. Not to be written to."""
    return kept_positions(ctx.layout, n, ctx.ranks, rank, device, ctx.documents(n, cut_by))


def by_number(number: int) -> Context:
    found = _contexts.get(number)
    ctx = None if found is None else found()
    if ctx is None:
        raise ArgumentError("the context of this operator is gone; keep what ringattn.torch.init gave")
    return ctx


def current(ctx: Optional[Context] = None) -> Context:
    """ctx, or that of this thread, or the one made last by init."""
    if ctx is not None:
        return ctx
    mine = getattr(_current, "ctx", None)
    if mine is not None:
        return mine
    if not _default:
        raise ArgumentError("no context: call ringattn.torch.init() first, or give ctx=")
    return _default[-1]
