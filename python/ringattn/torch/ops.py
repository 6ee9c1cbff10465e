"""The operators: ringattn::attention and its backward, ringattn::shard and ringattn::unshard.

Contexts go by number and patterns as texts, so that graphs can hold them. Outputs have the shapes that the
fake kernels say, whatever the ranks. They are defined by their schemas, which costs a call less than
torch.library.custom_op.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _arrays
from ..errors import ArgumentError, UnsupportedError
from ..plan import Plan
from ..problem import Dilated, Problem, window_of
from . import context as contexts
from .straight import are_ordinary, straight

# seq_q, seq_k: of the whole sequence. what: all else that is computed, as describe() writes it; each argument costs a
# call half a microsecond.
_SCHEMAS = {
    "attention": "(Tensor q, Tensor k, Tensor v, Tensor? cu_q, Tensor? cu_k, int ctx, bool training, SymInt seq_q, "
                 "SymInt seq_k, str what) -> (Tensor, Tensor)",
    "attention_backward": "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? cu_q, "
                          "Tensor? cu_k, int ctx, SymInt seq_q, SymInt seq_k, str what) -> (Tensor, Tensor, Tensor)",
    "shard": "(Tensor x, int dim, int ctx, Tensor? cut_by=None) -> Tensor",
    "unshard": "(Tensor x, int dim, int ctx, SymInt n, Tensor? cut_by=None) -> Tensor",
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


def described(causal: bool, window: Tuple[int, int], scale: Optional[float], dilated: Optional[Dilated]) -> str:
    """describe, from memory. Not for code that is being compiled."""
    scale = None if scale is None else float(scale)  # a tensor would be remembered as itself, not by its value
    try:
        return _remembered(causal, window, scale, dilated)
    except TypeError:  # a window or branches in a list have no hash
        return describe(causal, window, scale, dilated)


def describe(causal: bool, window: Tuple[int, int], scale: Optional[float], dilated: Optional[Dilated]) -> str:
    """The operators' `what`: "causal left right scale", and for a dilated pattern "heads offset combine segment:rate
    ..."."""
    left, right = window_of(window)
    text = f"{int(causal)} {left} {right} {'default' if scale is None else float(scale).hex()}"
    if dilated is None:
        return text
    branches = " ".join(f"{segment}:{rate}" for segment, rate in dilated.branches)
    return f"{text} {dilated.heads} {dilated.offset} {dilated.combine} {branches}"


_remembered = functools.lru_cache(maxsize=256)(describe)


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


def _plan(here: contexts.Context, q: Tensor, k: Tensor, v: Tensor, cu_q: Optional[Tensor], cu_k: Optional[Tensor],
          training: bool, seq_q: int, seq_k: int, what: str) -> Plan:
    documents = None if cu_q is None else tuple(cu_q.tolist())
    documents_k = None if cu_k is None else tuple(cu_k.tolist())
    key = (q.shape, k.shape, v.shape, q.dtype, q.device, documents, documents_k, training, seq_q, seq_k, what)
    found = here.kept(key)
    if found is not None:
        return found
    problem = Problem(batch=q.shape[0], seq_q=seq_q, seq_k=seq_k, heads_q=q.shape[2], heads_kv=k.shape[2],
                      dim=q.shape[3], dim_v=v.shape[3], dtype=_arrays.view(q, "q").dtype, cu_seqlens=documents,
                      cu_seqlens_k=documents_k, **_pattern_of(what))
    made = here.plan(key, problem, training, q.device)
    shapes = made.shapes
    made.for_these_shapes = q.shape == shapes["q"] and k.shape == shapes["k"] and v.shape == shapes["v"]
    return made


def _fits(plan: Plan, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the tensors that _plan gave the plan for are of its shapes, and of q's type and device, for which it was
    made."""
    dtype, device = q.dtype, q.get_device()
    return (plan.for_these_shapes and k.dtype is dtype and v.dtype is dtype and k.get_device() == device
            and v.get_device() == device)


def _check_rows(here: contexts.Context, plan: Plan, q: Tensor, seq_q: int) -> None:
    """What is wrong most often: a seq_len that is not the whole sequence's, or rows that are not this rank's."""
    if q.shape[1] != plan.rows_q:
        raise ArgumentError(f"q has shape {list(q.shape)}, but rank {here.rank} of {here.ranks} has {plan.rows_q} rows "
                            f"of a sequence of {seq_q} in layout {here.layout}: seq_len is the length of the whole "
                            "sequence, and q, k, v are this rank's rows of it, as ringattn.torch.shard and shard_batch "
                            "cut them")


if hasattr(torch._C, "_cuda_getCurrentRawStream"):

    def _stream(x: Tensor) -> Optional[int]:
        return torch._C._cuda_getCurrentRawStream(x.get_device()) if x.is_cuda else None

else:

    def _stream(x: Tensor) -> Optional[int]:
        return torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None


def _attention(q: Tensor, k: Tensor, v: Tensor, cu_q: Optional[Tensor], cu_k: Optional[Tensor], ctx: int,
               training: bool, seq_q: int, seq_k: int, what: str) -> Tuple[Tensor, Tensor]:
    """q [B, rows_q, H, D], k [B, rows_k, Hkv, D], v [B, rows_k, Hkv, Dv] -> o [B, rows_q, H, Dv], lse [B, H,
    rows_q]."""
    here = contexts.by_number(ctx)
    here.take_turn()
    try:
        plan = _plan(here, q, k, v, cu_q, cu_k, training, seq_q, seq_k, what)
        o, lse = _empty(plan, q, "o"), _empty(plan, q, "lse", _lse_dtype(q.dtype))
        if _fits(plan, q, k, v):
            dense = q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
            plan.forward_at(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(), _stream(q),
                            None if dense else (q.stride(), k.stride(), v.stride()))
        else:
            _check_rows(here, plan, q, seq_q)
            plan.forward(q, k, v, o, lse, _stream(q))  # which says what does not fit
        if here.ranks > 1:
            here.ran(plan, q.device)
        return o, lse
    except contexts.LOST:
        here.lost()
        raise
    finally:
        here.turn.release()


torch.library.impl("ringattn::attention", ("cpu", "cuda"), _attention)


# Functions that torch's compiled graphs allocate by, in a third of the time of torch.empty.
_empty_cpu = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None)
_empty_cuda = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)


def _empty(plan: Plan, like: Tensor, name: str, dtype: Optional[torch.dtype] = None) -> Tensor:
    """A dense tensor for one of the plan's results, on the device of `like`."""
    shape, stride, dtype, device = plan.shapes[name], plan.strides[name], dtype or like.dtype, like.get_device()
    if device < 0 and _empty_cpu is not None:
        return _empty_cpu(shape, stride, dtype)
    if device >= 0 and _empty_cuda is not None and torch._C._cuda_getDevice() == device:  # on the current one
        return _empty_cuda(shape, stride, dtype)
    return like.new_empty_strided(shape, stride, dtype=dtype)


def _lse_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


@torch.library.register_fake("ringattn::attention")
def _(q, k, v, *_rest):
    o = q.new_empty((q.shape[0], q.shape[1], q.shape[2], v.shape[3]))
    return o, q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=_lse_dtype(q.dtype))


def _attention_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, cu_q: Optional[Tensor],
                        cu_k: Optional[Tensor], ctx: int, seq_q: int, seq_k: int,
                        what: str) -> Tuple[Tensor, Tensor, Tensor]:
    """dout [B, rows_q, H, Dv] and what the forward pass had and gave -> dq, dk, dv of the shapes of q, k, v."""
    here = contexts.by_number(ctx)
    here.take_turn()
    try:
        plan = _plan(here, q, k, v, cu_q, cu_k, True, seq_q, seq_k, what)
        dq, dk, dv = _empty(plan, q, "dq"), _empty(plan, q, "dk"), _empty(plan, q, "dv")
        if _fits(plan, q, k, v) and _are_ours(plan, q, o, lse, dout):
            dense = q.is_contiguous() and k.is_contiguous() and v.is_contiguous() and dout.is_contiguous()
            plan.backward_at(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(), dout.data_ptr(),
                             dq.data_ptr(), dk.data_ptr(), dv.data_ptr(), _stream(q),
                             None if dense else (q.stride(), k.stride(), v.stride(), dout.stride()))
        else:
            plan.backward(q, k, v, o, lse, dout, dq, dk, dv, _stream(q))
        if here.ranks > 1:
            here.ran(plan, q.device)
        return dq, dk, dv
    except contexts.LOST:
        here.lost()
        raise
    finally:
        here.turn.release()


def _are_ours(plan: Plan, q: Tensor, o: Tensor, lse: Tensor, dout: Tensor) -> bool:
    """Whether o and lse are as the forward pass made them, and dout fits o. Hooks may have brought others."""
    dtype, device, shape = q.dtype, q.get_device(), plan.shapes["o"]
    return (o.dtype is dtype and dout.dtype is dtype and lse.dtype is _lse_dtype(dtype)
            and o.get_device() == device and dout.get_device() == device and lse.get_device() == device
            and o.shape == shape and dout.shape == shape and lse.shape == plan.shapes["lse"]
            and o.is_contiguous() and lse.is_contiguous())


torch.library.impl("ringattn::attention_backward", ("cpu", "cuda"), _attention_backward)


@torch.library.register_fake("ringattn::attention_backward")
def _(dout, q, k, v, *_rest):
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


class _Attention(torch.autograd.Function):
    """The operator with its gradient: run(*inputs) is the forward pass, inputs are the operator's.

    torch.library.register_autograd would do, but it goes through the schema in every call, which takes longer than all
    the rest. lse has no gradient, and none is made up for it: that would be a kernel in every backward pass.
    """

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Tuple[Tensor, Tensor]], *inputs: Any) -> Tuple[Tensor, Tensor]:
        q, k, v, cu_q, cu_k, number, _training, *rest = inputs
        o, lse = run(*inputs)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, o, lse, cu_q, cu_k)
        ctx.rest = (number, *rest)
        return o, lse

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise UnsupportedError("attention has no forward-mode derivative; use torch.autograd.grad or backward()")

    @staticmethod
    def backward(ctx: Any, dout: Optional[Tensor], _dlse: Any) -> Tuple:
        if dout is None:
            return (None,) * 11
        q, k, v, o, lse, cu_q, cu_k = ctx.saved_tensors
        past = not torch.compiler.is_compiling() and straight(dout, q, k, v, o, lse)  # compiled autograd traces this
        call = _attention_backward if past else attention_backward_op
        if not torch.is_grad_enabled():
            return (None, *call(dout, q, k, v, o, lse, cu_q, cu_k, *ctx.rest)) + (None,) * 7
        with torch.no_grad():  # create_graph=True
            gradients = call(dout, q, k, v, o, lse, cu_q, cu_k, *ctx.rest)
        return (None, *_Gradients.apply(*gradients, dout, q, k, v)) + (None,) * 7


class _Gradients(torch.autograd.Function):
    """dq, dk, dv as they are, and to differentiate them is an error: as constants they would leave terms out
    silently."""

    @staticmethod
    def forward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor, *_inputs: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        return dq, dk, dv

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Tuple:
        raise UnsupportedError("the gradient of attention has no gradient of its own, which create_graph=True asked "
                               "for")


def _below_autograd(keyset: Any, *inputs: Any) -> Tuple[Tensor, Tensor]:
    with torch._C._AutoDispatchBelowAutograd():
        return attention_op.redispatch(keyset & torch._C._after_autograd_keyset, *inputs)


def _attention_autograd(keyset: Any, *inputs: Any) -> Tuple[Tensor, Tensor]:
    # The keys are those of all tensors, and of what is on for this thread. Past the dispatcher: see straight.py.
    run = _attention if are_ordinary(keyset) else functools.partial(_below_autograd, keyset)
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in inputs[:3])
    if recorded or forward_ad._current_level >= 0:  # a tangent is refused: by the function's jvp
        if torch._C._are_functorch_transforms_active():
            raise UnsupportedError("torch.func.grad, vjp, jvp and what is made of them do not go through attention; "
                                   "use torch.autograd.grad or backward()")
        return _Attention.apply(run, *inputs)
    return run(*inputs)


# _Attention.apply without torch's search for tensors that transforms have left behind: straight() has seen none.
_apply = super(torch.autograd.Function, _Attention).apply


def attention_straight(*inputs: Any) -> Tuple[Tensor, Tensor]:
    """attention_op without torch's dispatcher, where straight() allows it."""
    training = inputs[6]
    return _apply(_attention, *inputs) if training else _attention(*inputs)


_library = torch.library.Library("ringattn", "FRAGMENT")
_library.impl("attention", _attention_autograd, "Autograd", with_keyset=True)


def _rows_like(x: Tensor, dim: int, rows: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = rows
    return torch.empty(shape, dtype=x.dtype, device=x.device)


@torch.library.impl("ringattn::shard", ("cpu", "cuda"))
def _shard(x: Tensor, dim: int, ctx: int, cut_by: Optional[Tensor] = None) -> Tensor:
    """The whole sequence along dim, which every rank has -> this rank's rows. cut_by: of Context.cut_by."""
    here = contexts.by_number(ctx)
    positions = contexts.positions_of(here, x.shape[dim], here.rank, x.device, cut_by)
    return x.index_select(dim, positions).contiguous()


@torch.library.register_fake("ringattn::shard")
def _(x, dim, ctx, cut_by=None):
    return _rows_like(x, dim, contexts.by_number(ctx).rows(int(x.shape[dim])))


@torch.library.impl("ringattn::unshard", ("cpu", "cuda"))
def _unshard(x: Tensor, dim: int, ctx: int, n: int, cut_by: Optional[Tensor] = None) -> Tensor:
    """This rank's rows along dim -> the whole sequence of n, on every rank. Collective."""
    here = contexts.by_number(ctx)
    most = max(contexts.layout_rows(here.layout, n, here.ranks, rank) for rank in range(here.ranks))
    padded = x.new_zeros([most, *x.shape[:dim], *x.shape[dim + 1:]])
    padded[:x.shape[dim]] = x.movedim(dim, 0)
    whole = x.new_empty([n, *padded.shape[1:]])
    for rank, rows in enumerate(here.gather(padded)):
        positions = contexts.positions_of(here, n, rank, x.device, cut_by)
        whole[positions] = rows[:len(positions)]
    return whole.movedim(0, dim).contiguous()


@torch.library.register_fake("ringattn::unshard")
def _(x, dim, ctx, n, cut_by=None):
    return _rows_like(x, dim, n)


# The way back goes by the documents of the way there: the context may be at another batch by then.
def _save_shard(ctx: Any, inputs: Tuple, output: Tensor) -> None:
    x, ctx.dim, ctx.number, cut_by = inputs
    ctx.n = x.shape[ctx.dim]
    ctx.save_for_backward(cut_by)


def _shard_backward(ctx: Any, grad: Tensor) -> Tuple:
    return unshard_op(grad, ctx.dim, ctx.number, ctx.n, *ctx.saved_tensors), None, None, None


def _save_unshard(ctx: Any, inputs: Tuple, output: Tensor) -> None:
    _, ctx.dim, ctx.number, _, cut_by = inputs
    ctx.save_for_backward(cut_by)


def _unshard_backward(ctx: Any, grad: Tensor) -> Tuple:
    return shard_op(grad, ctx.dim, ctx.number, *ctx.saved_tensors), None, None, None, None


torch.library.register_autograd("ringattn::shard", _shard_backward, setup_context=_save_shard)
torch.library.register_autograd("ringattn::unshard", _unshard_backward, setup_context=_save_unshard)
