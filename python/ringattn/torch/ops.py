"""The operators: ringattn::attention and its backward, ringattn::shard and ringattn::unshard.

Contexts go by number and patterns as texts, so that graphs can hold them. Outputs have the shapes that the
fake kernels say, whatever the ranks. They are defined by their schemas, which costs a call less than
torch.library.custom_op.
"""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from .. import _arrays
from ..problem import Dilated, Problem
from . import context as contexts

# seq_q, seq_k: of the whole sequence. what: all else that is computed, as describe() writes it; each argument costs a
# call half a microsecond.
_SCHEMAS = {
    "attention": "(Tensor q, Tensor k, Tensor v, Tensor? cu_q, Tensor? cu_k, int ctx, bool training, SymInt seq_q, "
                 "SymInt seq_k, str what) -> (Tensor, Tensor)",
    "attention_backward": "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? cu_q, "
                          "Tensor? cu_k, int ctx, SymInt seq_q, SymInt seq_k, str what) -> (Tensor, Tensor, Tensor)",
    "shard": "(Tensor x, int dim, int ctx) -> Tensor",
    "unshard": "(Tensor x, int dim, int ctx, SymInt n) -> Tensor",
}
# Ranks meet on the host in every call, and a first call makes a plan: neither can be replayed by a CUDA graph.
_TAGS = tuple(getattr(torch.Tag, _name) for _name in ("pt2_compliant_tag", "cudagraph_unsafe")
              if hasattr(torch.Tag, _name))
for _name, _schema in _SCHEMAS.items():
    torch.library.define(f"ringattn::{_name}", _schema, tags=_TAGS)
attention_op = torch.ops.ringattn.attention.default
attention_backward_op = torch.ops.ringattn.attention_backward.default
shard_op = torch.ops.ringattn.shard.default
unshard_op = torch.ops.ringattn.unshard.default


def describe(causal: bool, window: Tuple[int, int], scale: Optional[float], dilated: Optional[Dilated]) -> str:
    """The operators' `what`: "causal left right scale", and for a dilated pattern "heads offset combine segment:rate
    ..."."""
    text = f"{int(causal)} {window[0]} {window[1]} {'default' if scale is None else float(scale).hex()}"
    if dilated is None:
        return text
    branches = " ".join(f"{segment}:{rate}" for segment, rate in dilated.branches)
    return f"{text} {dilated.heads} {dilated.offset} {dilated.combine} {branches}"


def _pattern_of(what: str) -> Dict[str, Any]:
    """The way back: arguments of Problem."""
    causal, left, right, scale, *dilated = what.split()
    pattern: Dict[str, Any] = {"causal": causal == "1", "window": (int(left), int(right)),
                               "scale": None if scale == "default" else float.fromhex(scale)}
    if dilated:
        heads, offset, combine, *branches = dilated
        branches = tuple(tuple(int(n) for n in branch.split(":")) for branch in branches)
        pattern["dilated"] = Dilated(branches, heads, offset, combine)
    return pattern


def _offsets(cu: Optional[Tensor]) -> Optional[Tuple[int, ...]]:
    return None if cu is None else tuple(cu.tolist())


def _plan(ctx: contexts.Context, q: Tensor, k: Tensor, v: Tensor, cu_q: Optional[Tensor], cu_k: Optional[Tensor],
          training: bool, seq_q: int, seq_k: int, what: str) -> Any:
    documents, documents_k = _offsets(cu_q), _offsets(cu_k)

    def problem() -> Problem:
        return Problem(batch=q.shape[0], seq_q=seq_q, seq_k=seq_k, heads_q=q.shape[2], heads_kv=k.shape[2],
                       dim=q.shape[3], dim_v=v.shape[3], dtype=_arrays.view(q, "q").dtype, cu_seqlens=documents,
                       cu_seqlens_k=documents_k, **_pattern_of(what))

    key = (q.shape, k.shape, v.shape, q.dtype, q.device, documents, documents_k, training, seq_q, seq_k, what)
    return ctx.plan(key, problem, training, q.device)


def _stream(x: Tensor) -> Optional[int]:
    return torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None


@torch.library.impl("ringattn::attention", ("cpu", "cuda"))
def _attention(q: Tensor, k: Tensor, v: Tensor, cu_q: Optional[Tensor], cu_k: Optional[Tensor], ctx: int,
               training: bool, seq_q: int, seq_k: int, what: str) -> Tuple[Tensor, Tensor]:
    """q [B, rows_q, H, D], k [B, rows_k, Hkv, D], v [B, rows_k, Hkv, Dv] -> o [B, rows_q, H, Dv], lse [B, H,
    rows_q]."""
    here = contexts.by_number(ctx)
    try:
        plan = _plan(here, q, k, v, cu_q, cu_k, training, seq_q, seq_k, what)
        o, lse = _forward_like(q, v)
        plan.forward(q, k, v, o, lse, stream=_stream(q))
        here.ran(plan, q.device)
        return o, lse
    except contexts.LOST:
        here.lost()
        raise


def _forward_like(q: Tensor, v: Tensor) -> Tuple[Tensor, Tensor]:
    lse_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    o = torch.empty((q.shape[0], q.shape[1], q.shape[2], v.shape[3]), dtype=q.dtype, device=q.device)
    return o, torch.empty((q.shape[0], q.shape[2], q.shape[1]), dtype=lse_dtype, device=q.device)


@torch.library.register_fake("ringattn::attention")
def _(q, k, v, *_rest):
    return _forward_like(q, v)


@torch.library.impl("ringattn::attention_backward", ("cpu", "cuda"))
def _attention_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, cu_q: Optional[Tensor],
                        cu_k: Optional[Tensor], ctx: int, seq_q: int, seq_k: int,
                        what: str) -> Tuple[Tensor, Tensor, Tensor]:
    """dout [B, rows_q, H, Dv] and what the forward pass had and gave -> dq, dk, dv of the shapes of q, k, v."""
    here = contexts.by_number(ctx)
    try:
        plan = _plan(here, q, k, v, cu_q, cu_k, True, seq_q, seq_k, what)
        dq, dk, dv = _backward_like(q, k, v)
        plan.backward(q, k, v, o, lse, dout, dq, dk, dv, stream=_stream(q))
        here.ran(plan, q.device)
        return dq, dk, dv
    except contexts.LOST:
        here.lost()
        raise


def _backward_like(*inputs: Tensor) -> Tuple[Tensor, ...]:
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in inputs)


@torch.library.register_fake("ringattn::attention_backward")
def _(dout, q, k, v, *_rest):
    return _backward_like(q, k, v)


class _Attention(torch.autograd.Function):
    """The operator with its gradient. torch.library.register_autograd would do, but it goes through the schema in every
    call, which takes longer than all the rest."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, *inputs: Any) -> Tuple[Tensor, Tensor]:
        q, k, v, cu_q, cu_k, number, _training, *rest = inputs
        o, lse = _below_autograd(keyset, *inputs)
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(q, k, v, o, lse, cu_q, cu_k)
        ctx.rest = (number, *rest)
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor, _dlse: Any) -> Tuple:
        q, k, v, o, lse, cu_q, cu_k = ctx.saved_tensors
        dq, dk, dv = attention_backward_op(dout, q, k, v, o, lse, cu_q, cu_k, *ctx.rest)
        return (None, dq, dk, dv) + (None,) * 7


def _below_autograd(keyset: Any, *inputs: Any) -> Tuple[Tensor, Tensor]:
    with torch._C._AutoDispatchBelowAutograd():
        return attention_op.redispatch(keyset & torch._C._after_autograd_keyset, *inputs)


def _attention_autograd(keyset: Any, *inputs: Any) -> Tuple[Tensor, Tensor]:
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs[:3]):
        return _Attention.apply(keyset, *inputs)
    return _below_autograd(keyset, *inputs)


def attention_without_gradient(*inputs: Any) -> Tuple[Tensor, Tensor]:
    """attention_op where no gradient is wanted, a few microseconds faster."""
    with torch._C._AutoDispatchBelowAutograd():
        return attention_op(*inputs)


_library = torch.library.Library("ringattn", "FRAGMENT")
_library.impl("attention", _attention_autograd, "Autograd", with_keyset=True)


def _rows_like(x: Tensor, dim: int, rows: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = rows
    return torch.empty(shape, dtype=x.dtype, device=x.device)


@torch.library.impl("ringattn::shard", ("cpu", "cuda"))
def _shard(x: Tensor, dim: int, ctx: int) -> Tensor:
    """The whole sequence along dim, which every rank has -> this rank's rows."""
    here = contexts.by_number(ctx)
    return x.index_select(dim, here.positions(x.shape[dim], x.device)).contiguous()


@torch.library.register_fake("ringattn::shard")
def _(x, dim, ctx):
    return _rows_like(x, dim, contexts.by_number(ctx).rows(int(x.shape[dim])))


@torch.library.impl("ringattn::unshard", ("cpu", "cuda"))
def _unshard(x: Tensor, dim: int, ctx: int, n: int) -> Tensor:
    """This rank's rows along dim -> the whole sequence of n, on every rank. Collective."""
    here = contexts.by_number(ctx)
    most = max(contexts.layout_rows(here.layout, n, here.ranks, rank) for rank in range(here.ranks))
    padded = x.new_zeros([most, *x.shape[:dim], *x.shape[dim + 1:]])
    padded[:x.shape[dim]] = x.movedim(dim, 0)
    whole = x.new_empty([n, *padded.shape[1:]])
    for rank, rows in enumerate(here.gather(padded)):
        positions = contexts.positions_of(here, n, rank, x.device)
        whole[positions] = rows[:len(positions)]
    return whole.movedim(0, dim).contiguous()


@torch.library.register_fake("ringattn::unshard")
def _(x, dim, ctx, n):
    return _rows_like(x, dim, n)


def _save_shard(ctx: Any, inputs: Tuple, output: Tensor) -> None:
    x, ctx.dim, ctx.number = inputs
    ctx.n = x.shape[ctx.dim]


def _save_unshard(ctx: Any, inputs: Tuple, output: Tensor) -> None:
    _, ctx.dim, ctx.number, _ = inputs


torch.library.register_autograd(
    "ringattn::shard", lambda ctx, grad: (unshard_op(grad, ctx.dim, ctx.number, ctx.n), None, None),
    setup_context=_save_shard)
torch.library.register_autograd(
    "ringattn::unshard", lambda ctx, grad: (shard_op(grad, ctx.dim, ctx.number), None, None, None),
    setup_context=_save_unshard)
