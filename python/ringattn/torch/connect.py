"""How contexts are made: from a process group, whose ranks are connected over UCX, or for ranks that are threads."""
from __future__ import annotations

import os
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from ..comm import Comm, run_ranks as run_thread_ranks
from ..errors import ArgumentError
from .context import Context, _current, _default, _of_group, current
from .graphs import outside_graphs


def _group_of(group: Optional[Any]) -> Optional[Any]:
    """A process group from what init takes; None where there is no torch.distributed to speak of."""
    if group is None:
        return dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
    if hasattr(group, "get_group") and hasattr(group, "mesh_dim_names"):
        if group.ndim != 1:
            raise ArgumentError(f"the mesh has {group.ndim} dimensions, {group.mesh_dim_names}; give the one that the "
                                "sequence is cut over, as mesh['cp']")
        group = group.get_group()
    if dist.get_rank(group) < 0:
        raise ArgumentError("this process is no member of the group: each rank gives the group that it is in, as "
                            "mesh['cp'] does")
    return group


def _check_launched() -> None:
    """Without torch.distributed each of several processes would be a rank of its own, with a sequence of its own."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1 and "RANK" in os.environ:
        raise ArgumentError(f"this is one of {os.environ['WORLD_SIZE']} processes (WORLD_SIZE), but torch.distributed "
                            "is not initialised: call torch.distributed.init_process_group first; for a rank by itself "
                            "make ringattn.torch.Context(ringattn.Comm.single())")


def init(group: Optional[Any] = None, layout: str = "auto", strategy: str = "auto", timeout: float = 60) -> Context:
    """A context from a process group or a one-dimensional DeviceMesh; default: the default group, or one rank without
    it.

    Collective. It becomes the default of every function here that takes ctx. Ranks are connected over UCX; the group
    itself carries only what goes round outside of attention: addresses, unshard, lengths. layout "auto" is zigzag.
    """
    group = _group_of(group)
    if group is None:
        _check_launched()
    ranks = 1 if group is None else dist.get_world_size(group)
    comm = Comm.single() if ranks == 1 else _ucx_comm(group, ranks, timeout)
    ctx = Context(comm, group if ranks > 1 else None, layout, strategy, timeout, torch.get_num_threads())
    _default.append(ctx)
    return ctx


def for_group(group: Any, layout: str) -> Context:
    """The context of a process group, a DeviceMesh or the default group (None), made when it is first asked for and
    kept; of a context, itself; without torch.distributed the current one. In the layout asked for."""
    if isinstance(group, Context):
        return group.with_layout(layout)
    found = _group_of(group)
    if found is None:
        return current().with_layout(layout)
    if found not in _of_group:
        _connect(found)
    return _of_group[found].with_layout(layout)


@outside_graphs
def _connect(group: Any) -> None:
    """The context that init made of this group, or a new one, which is the default only where there is none. Never
    inside a graph: ranks meet once, not whenever it runs."""
    made = next((ctx for ctx in _default if ctx.group is group), None)
    if made is None:
        before = list(_default)
        made = init(group)
        _default[:] = before or [made]
    _of_group[group] = made


def _ucx_comm(group: Any, ranks: int, timeout: float) -> Comm:
    def allgather(mine: bytes) -> Sequence[bytes]:
        blocks: List[Any] = [None] * ranks
        dist.all_gather_object(blocks, mine, group=group)
        return blocks

    return Comm.ucx(dist.get_rank(group), ranks, allgather, timeout)


def run_ranks(ranks: int, body: Callable[[Context], Any], layout: str = "auto", strategy: str = "auto",
              timeout: float = 60) -> List[Any]:
    """Calls body(ctx) for each of `ranks` ranks on a thread of its own; their results in rank order. For trying out
    and for testing what will run under torchrun: ctx is the thread's default."""
    threads = max(1, (os.cpu_count() or 1) // ranks)

    def rank_main(comm: Comm) -> Any:
        _current.ctx = Context(comm, None, layout, strategy, timeout, threads)
        try:
            # A process has one autograd thread for each GPU, on which a rank's backward pass would wait for another's.
            with torch.autograd.set_multithreading_enabled(False):
                return body(_current.ctx)
        finally:
            _current.ctx.close()
            _current.ctx = None

    return run_thread_ranks(ranks, rank_main)
