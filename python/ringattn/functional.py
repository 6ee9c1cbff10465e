"""The front door for arrays: attention and its gradient, with the sequence cut over ranks that are threads of this
process."""
from __future__ import annotations

from contextlib import contextmanager
import ctypes
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

from . import _arrays, _library
from .comm import Comm, run_ranks
from .errors import ArgumentError, check
from .layout import assign, index, layout_resolve, select
from .plan import Plan, backend_of
from .problem import DilatedLike, Problem


def _four(x: Any, name: str) -> Tuple[Any, bool]:
    """x as [B, S, H, D]; [T, H, D] is one batch. Also whether it was."""
    x = _arrays.indexable(_arrays.as_array(x), name)
    if _arrays.is_torch(x):
        import torch

        if x.requires_grad and torch.is_grad_enabled():
            raise ArgumentError(f"{name} requires a gradient, which this function does not record; "
                                "use ringattn.torch.attention, or give x.detach()")
    if x.ndim == 3:
        return x[None], True
    if x.ndim != 4:
        raise ArgumentError(
            f"{name} has shape {list(x.shape)}; it must be [batch, tokens, heads, dim] or [tokens, heads, dim]")
    return x, False


class _Whole:
    """The arrays of one call: whole [B, S, H, D] ones, what they have in common, and how they are cut."""

    def __init__(self, arrays: Dict[str, Any], ranks: int, layout: str, strategy: str, **what: Any) -> None:
        fours = {name: _four(x, name) for name, x in arrays.items()}
        self.squeezed = any(squeezed for _, squeezed in fours.values())
        if self.squeezed != all(squeezed for _, squeezed in fours.values()):
            raise ArgumentError("some arrays are [batch, tokens, heads, dim] and others [tokens, heads, dim]")
        self.arrays = {name: x for name, (x, _) in fours.items()}
        views = {name: _arrays.view(x, name) for name, x in self.arrays.items()}
        q, k, v = views["q"], views["k"], views["v"]
        for name, seen in views.items():
            if seen.dtype != q.dtype or seen.device != q.device:
                raise ArgumentError(f"{name} is {seen.dtype} on {seen.device[0]}:{seen.device[1]}, "
                                    f"but q {q.dtype} on {q.device[0]}:{q.device[1]}")
        if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
            raise ArgumentError(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not belong together: "
                                "they are [B, Sq, H, D], [B, Sk, Hkv, D] and [B, Sk, Hkv, Dv]")
        self.ranks = int(ranks)
        self.device = q.device
        self.problem = Problem(
            batch=q.shape[0], seq_q=q.shape[1], seq_k=k.shape[1], heads_q=q.shape[2], heads_kv=k.shape[2],
            dim=q.shape[3], dim_v=v.shape[3], dtype=q.dtype, **what)
        self.strategy = strategy
        self.layout = layout_resolve(self.problem, self.ranks, layout, strategy)

    def rows(self, name: str, rank: int) -> Any:
        """Which rows of q, k, ... a rank has, as an index."""
        p, of_keys = self.problem, name in ("k", "v", "dk", "dv")
        n = p.seq_k if of_keys else p.seq_q
        cu_seqlens = p.cu_seqlens_k if of_keys and p.cu_seqlens_k is not None else p.cu_seqlens
        return index(self.layout, n, self.ranks, rank, cu_seqlens)

    def take(self, name: str, rank: int, x: Optional[Any] = None, axis: int = 1) -> Any:
        """A rank's rows of an array: in place where they are evenly spaced."""
        return select(self.arrays[name] if x is None else x, axis, self.rows(name, rank))

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return _arrays.empty(self.arrays["q"], shape, dtype)

    def out(self, whole: Any, name: str, rank: int, dtype: Optional[str] = None, axis: int = 1) -> Any:
        """Where a rank writes its rows: in the whole array where they are evenly spaced, else beside it."""
        rows = self.rows(name, rank)
        if isinstance(rows, slice):
            return select(whole, axis, rows)
        shape = list(whole.shape)
        shape[axis] = len(rows)
        return self.empty(shape, dtype or self.problem.dtype)

    def put(self, whole: Any, name: str, rank: int, rows_written: Any, axis: int = 1) -> None:
        """Brings rows that were written beside the whole array into it."""
        rows = self.rows(name, rank)
        if not isinstance(rows, slice):
            assign(whole, axis, rows, rows_written)

    def finish(self, x: Any) -> Any:
        return x[0] if self.squeezed else x

    def run(self, body: Callable[[Plan, int, Optional[int]], None], backward: bool, threads: int,
            timeout: float) -> None:
        """body(plan, rank, stream) on every rank; on a device the caller's work is done before and ours after."""
        _synchronize(self.arrays["q"])

        def rank_main(comm: Comm) -> None:
            with Plan(comm, self.problem, layout=self.layout, strategy=self.strategy, backward=backward,
                      threads=threads, timeout=timeout, device=self.device) as plan, _stream(self.device) as stream:
                body(plan, comm.rank, stream)

        run_ranks(self.ranks, rank_main)
        _synchronize(self.arrays["q"])


def _synchronize(x: Any) -> None:
    """Waits for what is on the current stream of the array's device."""
    if _arrays.is_torch(x) and x.is_cuda:
        import torch

        torch.cuda.synchronize(x.device)
    elif type(x).__module__.split(".")[0] == "cupy":
        x.device.synchronize()


@contextmanager
def _stream(device: Tuple[str, int]) -> Iterator[Optional[int]]:
    """A stream of a rank's own; None on the CPU."""
    backend = backend_of(device)
    if backend is None:
        yield None
        return
    out = ctypes.c_void_p()
    check(_library.core().ra_backend_stream_create(backend, ctypes.byref(out)))
    try:
        yield out.value
    finally:
        _library.core().ra_backend_stream_destroy(backend, out.value)


def attention(q: Any, k: Any, v: Any, causal: bool = False, window: Tuple[int, int] = (-1, -1),
              scale: Optional[float] = None, cu_seqlens: Optional[Sequence[int]] = None,
              cu_seqlens_k: Optional[Sequence[int]] = None, dilated: DilatedLike = None, ranks: int = 4,
              return_lse: bool = False, layout: str = "auto", strategy: str = "auto", threads: int = 0,
              timeout: float = 60) -> Any:
    """Exact attention with the sequence cut over `ranks` threads.

        q [B, Sq, H, D]   k [B, Sk, Hkv, D]   v [B, Sk, Hkv, Dv]   ->   o [B, Sq, H, Dv], lse [B, H, Sq]

    Arrays of numpy, torch, cupy, or anything with DLPack; any strides; float64, float32, bfloat16, float16. Without
    the batch, [T, H, D], they are one batch. o is of q's kind and type; with return_lse=True the result is (o, lse),
    lse in float32 (float64 for float64), the natural logarithm of the sum over the keys seen; -inf, and o zero, for a
    query that sees none.

    causal: the last query sees the last key (bottom right). window: (left, right) keys around the query's aligned
    position, -1 without limit. scale: 1/sqrt(D) unless given. cu_seqlens: documents of a packed batch of 1, and
    cu_seqlens_k those of the keys where they differ. dilated: pairs of (segment, rate), or a Dilated. threads: of
    each rank; 0 shares the cores.
    """
    whole = _Whole({"q": q, "k": k, "v": v}, ranks, layout, strategy, causal=causal, window=window, scale=scale,
                   cu_seqlens=cu_seqlens, cu_seqlens_k=cu_seqlens_k, dilated=dilated)
    p = whole.problem
    o = whole.empty((p.batch, p.seq_q, p.heads_q, p.dim_v), p.dtype)
    lse_dtype = "f64" if p.dtype == "f64" else "f32"
    lse = whole.empty((p.batch, p.heads_q, p.seq_q), lse_dtype)

    def body(plan: Plan, rank: int, stream: Optional[int]) -> None:
        mine = [whole.take(name, rank) for name in "qkv"]
        _synchronize(mine[0])
        outs = plan.forward(*mine, whole.out(o, "q", rank), whole.out(lse, "q", rank, lse_dtype, axis=2), stream=stream)
        plan.wait(stream)
        whole.put(o, "q", rank, outs[0])
        whole.put(lse, "q", rank, outs[1], axis=2)

    whole.run(body, False, threads, timeout)
    return (whole.finish(o), whole.finish(lse)) if return_lse else whole.finish(o)


def attention_backward(q: Any, k: Any, v: Any, o: Any, lse: Any, dout: Any, causal: bool = False,
                       window: Tuple[int, int] = (-1, -1), scale: Optional[float] = None,
                       cu_seqlens: Optional[Sequence[int]] = None, cu_seqlens_k: Optional[Sequence[int]] = None,
                       dilated: DilatedLike = None, ranks: int = 4, layout: str = "auto", strategy: str = "auto",
                       threads: int = 0, timeout: float = 60) -> Tuple[Any, Any, Any]:
    """The gradients (dq, dk, dv) of sum(dout * o), of the shapes of q, k, v.

    o [B, Sq, H, Dv] and lse [B, H, Sq] as attention(..., return_lse=True) gave them, dout of o's shape; it may be a
    broadcast array (strides of 0). The other arguments are those of that call; ranks and layout need not be.
    """
    whole = _Whole({"q": q, "k": k, "v": v, "o": o, "dout": dout}, ranks, layout, strategy, causal=causal,
                   window=window,
                   scale=scale, cu_seqlens=cu_seqlens, cu_seqlens_k=cu_seqlens_k, dilated=dilated)
    p = whole.problem
    lse = _arrays.indexable(_arrays.as_array(lse), "lse")
    lse = lse[None] if whole.squeezed and lse.ndim == 2 else lse
    if tuple(lse.shape) != (p.batch, p.heads_q, p.seq_q):
        raise ArgumentError(f"lse has shape {list(lse.shape)}; it must be [{p.batch}, {p.heads_q}, {p.seq_q}]")
    for name in ("o", "dout"):
        if tuple(whole.arrays[name].shape) != (p.batch, p.seq_q, p.heads_q, p.dim_v):
            raise ArgumentError(f"{name} has shape {list(whole.arrays[name].shape)}; "
                                f"it must be [{p.batch}, {p.seq_q}, {p.heads_q}, {p.dim_v}]")
    outs = {"d" + name: whole.empty(whole.arrays[name].shape, p.dtype) for name in "qkv"}

    def body(plan: Plan, rank: int, stream: Optional[int]) -> None:
        mine = [whole.take(name, rank) for name in ("q", "k", "v", "o")]
        mine_lse = whole.take("q", rank, lse, axis=2)
        mine_dout = whole.take("dout", rank)
        _synchronize(mine[0])
        written = plan.backward(*mine, mine_lse, mine_dout, *(whole.out(outs[name], name, rank) for name in outs),
                                stream=stream)
        plan.wait(stream)
        for name, rows in zip(outs, written):
            whole.put(outs[name], name, rank, rows)

    whole.run(body, True, threads, timeout)
    return tuple(whole.finish(x) for x in outs.values())

