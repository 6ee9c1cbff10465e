"""attention, shard and unshard for tensors of this rank's rows; cross entropy over a cut sequence."""
from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..problem import Dilated, DilatedLike, offsets
from . import ops
from .context import Context, current
from .straight import straight


def tensor_of(cu: Any, name: str) -> Optional[Tensor]:
    """cu_seqlens as a tensor of the host's, so that new documents recompile nothing."""
    if cu is None:
        return None
    if not isinstance(cu, Tensor):
        return torch.tensor(offsets(cu, name), dtype=torch.int64, device="cpu")
    if cu.dim() != 1 or cu.is_floating_point():
        raise ArgumentError(f"{name} is a tensor of {cu.dtype} and shape {list(cu.shape)}; it must be a row of whole "
                            "numbers, where documents start and where the last one ends")
    return cu


def _dim_of(x: Tensor, dim: int) -> int:
    if not -x.dim() <= dim < x.dim():
        raise ArgumentError(f"dim {dim} is none of a tensor of shape {list(x.shape)}")
    return dim % x.dim()


# Whether autocast is on for any device, which is asked faster than for one; a torch without the question: perhaps.
_autocast_somewhere = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def _autocast(*tensors: Tensor) -> Tuple[Tensor, ...]:
    """As matrix products are: in the type of torch.autocast where that is on."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind) or tensors[0].dtype == torch.float64:
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(kind)) for x in tensors)


def _check_documents(ctx: Context, seq_len: Optional[int], seq_len_k: Optional[int], cu: Any, cu_k: Any) -> None:
    """In layout "documents" rows that were cut by other documents would be taken for those at other positions."""
    n = ctx.seq_len if seq_len is None else seq_len
    if n is None:
        return
    n_k = n if seq_len_k is None else seq_len_k
    documents = offsets(cu, "cu_seqlens") or (0, n)
    documents_k = offsets(cu_k, "cu_seqlens_k") or (documents if len(documents) > 2 else (0, n_k))
    for name, length, given in (("cu_seqlens", n, documents), ("cu_seqlens_k", n_k, documents_k)):
        known = ctx.documents(length, ctx.cu_seqlens)
        if set(given) != set(known or ()):  # documents without rows move nothing
            raise ArgumentError(f"{name} is {list(given)}, but in layout documents the rows of this batch are cut by "
                                f"{list(known or ())}: give shard_batch the documents, or set ctx.cu_seqlens, before "
                                "the cut")


def _check_kinds(*tensors: Any) -> None:
    """What torch would refuse by the operator's name alone."""
    for name, x in zip("qkv", tensors):
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{name} is a {type(x).__name__}; give tensors, or call ringattn.attention for arrays")
        if hasattr(x, "to_local"):
            raise ArgumentError(f"{name} is a {type(x).__name__}; give x.to_local(), the heads that this rank computes")
        if x.is_nested:
            raise ArgumentError(f"{name} is a nested tensor; give its rows as [1, tokens, heads, dim], x.values()[None]"
                                ", and its offsets as cu_seqlens, x.offsets()")
        if x.layout is not torch.strided:
            raise ArgumentError(f"{name} is a tensor of layout {x.layout}; make it dense first")


def attention(q: Tensor, k: Tensor, v: Tensor, *, seq_len: Optional[int] = None, seq_len_k: Optional[int] = None,
              causal: bool = False, window: Tuple[int, int] = (-1, -1), scale: Optional[float] = None,
              cu_seqlens: Any = None, cu_seqlens_k: Any = None, dilated: DilatedLike = None,
              return_lse: bool = False, ctx: Optional[Context] = None) -> Any:
    """Exact attention of a sequence that is cut over the ranks of ctx. Collective, forward and backward.

        q [B, rows, H, D], k [B, rows_k, Hkv, D], v [B, rows_k, Hkv, Dv]: this rank's  ->  o [B, rows, H, Dv]

    seq_len is the length of the whole sequence (of the queries), which a rank alone cannot know; seq_len_k that of
    the keys where it differs. It may be left out with one rank, or when shard_batch was called for this batch. Any
    strides. The other arguments are those of ringattn.attention. return_lse: also lse [B, H, rows], through which no
    gradient flows. In layout "documents" queries and keys are of the documents that ctx.cu_seqlens has.
    """
    ctx = current(ctx)
    if ctx.layout == "documents" and ctx.ranks > 1 and not torch.compiler.is_compiling():
        _check_documents(ctx, seq_len, seq_len_k, cu_seqlens, cu_seqlens_k)
    return attend(q, k, v, seq_len, seq_len_k, causal, window, scale, cu_seqlens, cu_seqlens_k, dilated, return_lse,
                  ctx)


def attend(q: Tensor, k: Tensor, v: Tensor, seq_len: Optional[int], seq_len_k: Optional[int], causal: bool,
           window: Tuple[int, int], scale: Optional[float], cu_seqlens: Any, cu_seqlens_k: Any, dilated: DilatedLike,
           return_lse: bool, ctx: Context) -> Any:
    """attention of rows that the caller has cut by cu_seqlens, whatever the documents of the batch at hand are."""
    compiling = torch.compiler.is_compiling()
    past = not compiling and straight(q, k, v)
    if not past:
        _check_kinds(q, k, v)
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise ArgumentError(
            f"q, k, v have {q.dim()}, {k.dim()}, {v.dim()} dimensions; they are [batch, rows, heads, dim]")
    if compiling or _autocast_somewhere():
        q, k, v = _autocast(q, k, v)
    if seq_len is None:
        seq_len = q.shape[1] if ctx.ranks == 1 else ctx.sizes()[0]
        if seq_len is None:
            raise ArgumentError("seq_len: a rank knows only its rows; give the length of the whole sequence")
    if seq_len_k is None:
        seq_len_k = k.shape[1] if ctx.ranks == 1 else seq_len
    training = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    call = ops.attention_straight if past else ops.attention_op
    describe = ops.describe if compiling else ops.described
    o, lse = call(q, k, v, tensor_of(cu_seqlens, "cu_seqlens"), tensor_of(cu_seqlens_k, "cu_seqlens_k"), ctx.number,
                  training, seq_len, seq_len_k, describe(causal, window, scale, Dilated.of(dilated)))
    return (o, lse) if return_lse else o


def shard(x: Tensor, dim: int = 1, ctx: Optional[Context] = None) -> Tensor:
    """This rank's rows along dim of a tensor that every rank has whole. Its gradient is whole again, on every rank."""
    ctx = current(ctx)
    return ops.shard_op(x, _dim_of(x, dim), ctx.number, ctx.cut_by())


def unshard(x: Tensor, dim: int = 1, ctx: Optional[Context] = None, seq_len: Optional[int] = None) -> Tensor:
    """The whole sequence along dim, on every rank, from each rank's rows. Collective.

    The gradient is this rank's rows of the incoming one: every rank computes the same from the whole. seq_len saves
    asking the others for their rows; a compiled graph needs it.
    """
    ctx = current(ctx)
    dim = _dim_of(x, dim)
    n = ctx.sequence_length(x.shape[dim]) if seq_len is None else seq_len
    return ops.unshard_op(x, dim, ctx.number, n, ctx.cut_by())


def token_loss(logits: Tensor, shift_labels: Tensor, ignore_index: int = -100) -> Tensor:
    """The sum of the cross entropies of this rank's tokens: logits [B, rows, vocabulary], shift_labels [B, rows]."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                             shift_labels.reshape(-1).to(logits.device), ignore_index=ignore_index,
                                             reduction="sum")


def cross_entropy(logits: Tensor, shift_labels: Tensor, num_items_in_batch: Union[int, Tensor],
                  ctx: Optional[Context] = None, ignore_index: int = -100) -> Tensor:
    """This rank's summand of the mean cross entropy, such that the mean over the ranks is the whole batch's.

    logits [B, rows, vocabulary], shift_labels [B, rows] and num_items_in_batch as shard_batch gives them. DDP, FSDP
    and ZeRO average gradients over the ranks; so the local sum over all tokens of the batch is taken times the ranks.
    The mean over data-parallel groups is then the mean of their losses.
    """
    ctx = current(ctx)
    total = token_loss(logits, shift_labels, ignore_index)
    if isinstance(num_items_in_batch, Tensor):
        num_items_in_batch = num_items_in_batch.to(total.device)
    return total * ctx.ranks / num_items_in_batch


def mean_loss(loss: Tensor, ctx: Optional[Context] = None) -> Tensor:
    """The mean of every rank's loss, without a gradient: with cross_entropy, the loss of the whole batch. Collective.
    On a GPU it waits for the attention before it (Context.wait), so that a dead peer raises here."""
    current(ctx).wait()
    return torch.stack(current(ctx).gather(loss.detach().reshape(1))).mean()
