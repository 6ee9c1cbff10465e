"""Pictures of a problem cut over ranks, with matplotlib (pip install ringattn[plot]): what is seen and who computes
it, the schedule, memory and bytes against the number of ranks. Each function draws on an Axes, a new one unless
given, and returns it.
"""
from __future__ import annotations

from typing import Any, Optional, Sequence

from .errors import ArgumentError
from .layout import layout_positions, layout_resolve
from .plan import predict, predict_steps
from .problem import Problem

_MOST = 2048  # rows of a picture that are told apart


def _axes(ax: Optional[Any]) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot

    return matplotlib.pyplot.subplots()[1]


def visible(problem: Problem, head: int = 0) -> Any:
    """[seq_q, seq_k] of bool: which keys each query of a head sees. For problems that can be looked at."""
    import numpy

    if max(problem.seq_q, problem.seq_k) > _MOST:
        raise ArgumentError(
            f"a picture of {problem.seq_q} queries and {problem.seq_k} keys is too large; draw up to {_MOST}")
    seen = numpy.zeros((problem.seq_q, problem.seq_k), bool)
    cu_q = problem.cu_seqlens or (0, problem.seq_q)
    cu_k = problem.cu_seqlens_k or (cu_q if len(cu_q) > 2 else (0, problem.seq_k))  # one document has all keys
    for q0, q1, k0, k1 in zip(cu_q, cu_q[1:], cu_k, cu_k[1:]):
        key = numpy.arange(k1 - k0)[None, :]
        at = (numpy.arange(q1 - q0) + (k1 - k0) - (q1 - q0))[:, None]  # aligned bottom right
        seen_here = numpy.ones((q1 - q0, k1 - k0), bool)
        if problem.causal:
            seen_here &= key <= at
        if problem.window[0] >= 0:
            seen_here &= key >= at - problem.window[0]
        if problem.window[1] >= 0:
            seen_here &= key <= at + problem.window[1]
        if problem.dilated is not None:
            seen_here &= _kept(problem, head, key, at)
        seen[q0:q1, k0:k1] = seen_here
    return seen


def _kept(problem: Problem, head: int, key: Any, at: Any) -> Any:
    """Pairs that any branch of the head keeps."""
    import numpy

    pattern = problem.dilated
    assert pattern is not None
    branches = list(enumerate(pattern.branches))
    if pattern.heads == "groups":
        count = len(branches)
        small, more = divmod(problem.heads_q, count)
        ends = numpy.cumsum([small + (i < more) for i in range(count)])
        branches = [branches[int(numpy.searchsorted(ends, head, side="right"))]]
    kept = numpy.zeros(numpy.broadcast(key, at).shape, bool)
    for i, (segment, rate) in branches:
        offset = {"head": head % rate, "block": head // -(-problem.heads_q // rate), "group": i % rate}[pattern.offset]
        same = (key // segment == at // segment) & (at >= 0)
        kept |= same & (key % segment % rate == offset) & (at % segment % rate == offset)
    return kept


def mask(problem: Problem, ranks: int, layout: str = "auto", head: int = 0, ax: Optional[Any] = None) -> Any:
    """Queries down, keys across; a pair that is seen has the colour of the rank that its query lives on, which
    computes it."""
    import numpy

    ax = _axes(ax)
    layout = layout_resolve(problem, ranks, layout)
    owner = numpy.empty(problem.seq_q)
    for rank in range(ranks):
        owner[layout_positions(layout, problem.seq_q, ranks, rank, problem.cu_seqlens)] = rank
    picture = numpy.where(visible(problem, head), owner[:, None], numpy.nan)
    ax.imshow(picture, cmap="tab10", vmin=-0.5, vmax=9.5, interpolation="nearest", aspect="auto")
    ax.set(xlabel="key", ylabel="query", title=f"{layout} over {ranks} ranks")
    return ax


def schedule(problem: Problem, ranks: int, direction: str = "forward", ax: Optional[Any] = None, **options: Any) -> Any:
    """A row for each rank, a bar for each step, as long as the step has pairs to compute; the number is whose keys
    they are."""
    ax = _axes(ax)
    options.setdefault("backward", direction == "backward")
    for rank in range(ranks):
        start = 0.0
        for step in predict_steps(problem, ranks, rank, direction, **options):
            ax.barh(rank, step.pairs, left=start, color=f"C{step.owner % 10}" if step.owner >= 0 else "0.8",
                    edgecolor="white")
            if step.pairs and step.owner >= 0:
                ax.text(start + step.pairs / 2, rank, str(step.owner), ha="center", va="center", color="white")
            start += step.pairs
    ax.set(xlabel="pairs computed", ylabel="rank", yticks=range(ranks), title=f"{direction}: whose keys, when")
    ax.invert_yaxis()
    return ax


def scaling(problem: Problem, ranks: Sequence[int] = (1, 2, 4, 8, 16), ax: Optional[Any] = None, **options: Any) -> Any:
    """Against the number of ranks: the largest workspace of a rank, and the most that a rank sends in a pass."""
    ax = _axes(ax)
    options.setdefault("threads", 1)
    plans = [[predict(problem, count, rank, **options) for rank in range(count)] for count in ranks]
    ax.plot(ranks, [max(p.workspace_bytes for p in each) / 2**20 for each in plans], "o-", label="workspace")
    ax.plot(ranks, [max(p.forward.bytes_planned for p in each) / 2**20 for each in plans], "s--", label="sent, forward")
    if options.get("backward"):
        ax.plot(ranks, [max(p.backward.bytes_planned for p in each) / 2**20 for each in plans], "^--",
                label="sent, backward")
    ax.set(xlabel="ranks", ylabel="MiB of one rank", xscale="log", yscale="log", xticks=list(ranks),
           xticklabels=[str(count) for count in ranks])
    ax.legend()
    return ax
