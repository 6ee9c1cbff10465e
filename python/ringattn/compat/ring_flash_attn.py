"""The functions of ring_flash_attn, signature for signature.

    ring_...      rank r has the r-th of p runs               zigzag_ring_...  the r-th and the r-th last of 2p runs
    stripe_...    positions r, r + p, r + 2p, ...             llama3_...       the r-th run of a packed sequence

q [B, rows, H, D] (varlen: [rows, H, D]), this rank's. group: a process group, or None for the default one. With
return_attn_probs=True the result is (out, lse, None). dropout and alibi are refused; `deterministic` always holds. In
the varlen functions of ring, zigzag and stripe each document is cut over all ranks; cu_seqlens is that of this rank's
rows.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from .. import hf
from ..errors import ArgumentError, UnsupportedError
from ..torch import functional
from ..torch.connect import for_group
from ..torch.graphs import outside_graphs


def _refuse(dropout_p: float, alibi_slopes: Any) -> None:
    if dropout_p:
        raise UnsupportedError("dropout_p: ringattn has no dropout; give 0")
    if alibi_slopes is not None:
        raise UnsupportedError("alibi_slopes: ringattn has no additive bias")


def _fixed(layout: str, q: Tensor, k: Tensor, v: Tensor, dropout_p: float, softmax_scale: Optional[float], causal: bool,
           window_size: Tuple[int, int], alibi_slopes: Any, return_attn_probs: bool, group: Any) -> Any:
    _refuse(dropout_p, alibi_slopes)
    ctx = for_group(group, layout)
    o, lse = functional.attention(q, k, v, seq_len=q.shape[1] * ctx.ranks, seq_len_k=k.shape[1] * ctx.ranks,
                                  causal=causal, window=tuple(window_size), scale=softmax_scale, return_lse=True,
                                  ctx=ctx)
    return (o, lse, None) if return_attn_probs else o


@outside_graphs
def _varlen(layout: str, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, dropout_p: float,
            softmax_scale: Optional[float], causal: bool, window_size: Tuple[int, int], alibi_slopes: Any,
            return_attn_probs: bool, group: Any) -> Any:
    """Each document is a sequence of its own, cut over all ranks. Outside of compiled graphs: what is called depends on
    the numbers in cu_seqlens."""
    _refuse(dropout_p, alibi_slopes)
    if layout == "zigzag" and not bool((cu_seqlens % 2).any()):
        return _all_documents(q, k, v, cu_seqlens, softmax_scale, causal, window_size, return_attn_probs, group)
    ctx = for_group(group, layout)
    outs: List[Tensor] = []
    lses: List[Tensor] = []
    at = cu_seqlens.tolist()
    for start, end in zip(at, at[1:]):
        if start == end:
            continue
        o, lse = functional.attention(q[None, start:end], k[None, start:end], v[None, start:end],
                                      seq_len=(end - start) * ctx.ranks, causal=causal, window=tuple(window_size),
                                      scale=softmax_scale, return_lse=True, ctx=ctx)
        outs.append(o[0])
        lses.append(lse[0])
    out = torch.cat(outs)
    return (out, torch.cat(lses, dim=1), None) if return_attn_probs else out


def _all_documents(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, softmax_scale: Optional[float], causal: bool,
                   window_size: Tuple[int, int], return_attn_probs: bool, group: Any) -> Any:
    """All documents in one call: two equal runs of each are what the layout "documents" gives a rank."""
    ctx = for_group(group, "documents")
    whole = cu_seqlens.to("cpu", torch.int64) * ctx.ranks
    n = q.shape[0] * ctx.ranks
    o, lse = functional.attend(q[None], k[None], v[None], n, n, causal, tuple(window_size), softmax_scale, whole, None,
                               None, True, ctx)
    return (o[0], lse[0], None) if return_attn_probs else o[0]


def _family(prefix: str, layout: str) -> Tuple[Callable, Callable, Callable]:
    """The three functions of one layout: separate, packed kv and packed qkv tensors."""

    def func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), alibi_slopes=None,
             deterministic=False, return_attn_probs=False, group=None):
        return _fixed(layout, q, k, v, dropout_p, softmax_scale, causal, window_size, alibi_slopes, return_attn_probs,
                      group)

    def kvpacked(q, kv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), alibi_slopes=None,
                 deterministic=False, return_attn_probs=False, group=None):
        return _fixed(layout, q, kv[:, :, 0], kv[:, :, 1], dropout_p, softmax_scale, causal, window_size, alibi_slopes,
                      return_attn_probs, group)

    def qkvpacked(qkv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), alibi_slopes=None,
                  deterministic=False, return_attn_probs=False, group=None):
        return _fixed(layout, qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], dropout_p, softmax_scale, causal, window_size,
                      alibi_slopes, return_attn_probs, group)

    return _named(prefix, func, kvpacked, qkvpacked)


def _varlen_family(prefix: str, layout: str) -> Tuple[Callable, Callable, Callable]:
    def func(q, k, v, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
             alibi_slopes=None, deterministic=False, return_attn_probs=False, group=None):
        return _varlen(layout, q, k, v, cu_seqlens, dropout_p, softmax_scale, causal, window_size, alibi_slopes,
                       return_attn_probs, group)

    def kvpacked(q, kv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
                 alibi_slopes=None, deterministic=False, return_attn_probs=False, group=None):
        return _varlen(layout, q, kv[:, 0], kv[:, 1], cu_seqlens, dropout_p, softmax_scale, causal, window_size,
                       alibi_slopes, return_attn_probs, group)

    def qkvpacked(qkv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
                  alibi_slopes=None, deterministic=False, return_attn_probs=False, group=None):
        return _varlen(layout, qkv[:, 0], qkv[:, 1], qkv[:, 2], cu_seqlens, dropout_p, softmax_scale, causal,
                       window_size, alibi_slopes, return_attn_probs, group)

    return _named(prefix, func, kvpacked, qkvpacked)


def _named(prefix: str, *functions: Callable) -> Any:
    for function, suffix in zip(functions, ("_func", "_kvpacked_func", "_qkvpacked_func")):
        function.__name__ = function.__qualname__ = prefix + suffix
    return functions


(ring_flash_attn_func, ring_flash_attn_kvpacked_func,
 ring_flash_attn_qkvpacked_func) = _family("ring_flash_attn", "contiguous")
(zigzag_ring_flash_attn_func, zigzag_ring_flash_attn_kvpacked_func,
 zigzag_ring_flash_attn_qkvpacked_func) = _family("zigzag_ring_flash_attn", "zigzag")
(stripe_flash_attn_func, stripe_flash_attn_kvpacked_func,
 stripe_flash_attn_qkvpacked_func) = _family("stripe_flash_attn", "striped")
(ring_flash_attn_varlen_func, ring_flash_attn_varlen_kvpacked_func,
 ring_flash_attn_varlen_qkvpacked_func) = _varlen_family("ring_flash_attn_varlen", "contiguous")
(zigzag_ring_flash_attn_varlen_func, zigzag_ring_flash_attn_varlen_kvpacked_func,
 zigzag_ring_flash_attn_varlen_qkvpacked_func) = _varlen_family("zigzag_ring_flash_attn_varlen", "zigzag")
(stripe_flash_attn_varlen_func, stripe_flash_attn_varlen_kvpacked_func,
 stripe_flash_attn_varlen_qkvpacked_func) = _varlen_family("stripe_flash_attn_varlen", "striped")

# ---- llama3: a packed sequence in runs, documents wherever they fall

_wholes: Dict[Any, Tuple[int, ...]] = {}  # what the prepare function made, to the cu_seqlens that it was made from
_WHOLES_KEPT = 256


def _key(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, local_k_slice: slice) -> Any:
    return (tuple(cu_seqlens_q.tolist()), tuple(cu_seqlens_k.tolist()), local_k_slice.start, local_k_slice.stop)


def llama3_flash_attn_prepare_cu_seqlens(cu_seqlens: Tensor, causal: bool, rank: int,
                                         world_size: int) -> Tuple[Tensor, Tensor, int, int, slice]:
    """cu_seqlens of the whole packed sequence -> (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    local_k_slice) of the rank: its queries, and the keys that their documents have (up to its last query where
    causal)."""
    return _prepare(cu_seqlens, causal, rank, world_size)


@outside_graphs  # its results are numbers, which a graph has not
def _prepare(cu_seqlens: Tensor, causal: bool, rank: int, world_size: int) -> Tuple[Tensor, Tensor, int, int, slice]:
    whole = [int(n) for n in cu_seqlens.tolist()]
    if whole[-1] % world_size:
        raise ArgumentError(f"the packed sequence has {whole[-1]} tokens, which {world_size} ranks do not divide")
    rows = whole[-1] // world_size
    first, last = rank * rows, (rank + 1) * rows
    mine = [(start, end) for start, end in zip(whole, whole[1:]) if start < last and end > first]
    right = last if causal else mine[-1][1]
    left = mine[0][0]
    cu_q = [0] + [min(end, last) - first for _, end in mine]
    cu_k = [0] + [min(end, right) - left for _, end in mine]
    make = lambda values: torch.tensor(values, dtype=cu_seqlens.dtype, device=cu_seqlens.device)
    result = (make(cu_q), make(cu_k), max(b - a for a, b in zip(cu_q, cu_q[1:])),
              max(b - a for a, b in zip(cu_k, cu_k[1:])), slice(left, right))
    if len(_wholes) >= _WHOLES_KEPT:
        _wholes.pop(next(iter(_wholes)))
    _wholes[_key(result[0], result[1], result[4])] = tuple(whole)
    return result


@outside_graphs
def _whole_of(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, local_k_slice: slice) -> Tensor:
    """cu_seqlens of the whole packed sequence, from what the prepare function made of them."""
    whole = _wholes.get(_key(cu_seqlens_q, cu_seqlens_k, local_k_slice))
    if whole is None:
        raise ArgumentError("cu_seqlens_q, cu_seqlens_k and local_k_slice are none that "
                            "llama3_flash_attn_prepare_cu_seqlens gave lately in this process")
    return torch.tensor(whole, dtype=torch.int64, device="cpu")


def llama3_flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, heads_k_stride,
                                  local_k_slice, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
                                  alibi_slopes=None, deterministic=False, return_attn_probs=False, group=None):
    """q [rows, H, D]; the numbers are those that llama3_flash_attn_prepare_cu_seqlens gave. heads_k_stride has no
    effect: keys are not gathered, so there is nothing to do in portions."""
    _refuse(dropout_p, alibi_slopes)
    whole = _whole_of(cu_seqlens_q, cu_seqlens_k, local_k_slice)
    ctx = for_group(group, "contiguous")
    o, lse = functional.attention(q[None], k[None], v[None], seq_len=q.shape[0] * ctx.ranks, causal=causal,
                                  window=tuple(window_size), scale=softmax_scale, cu_seqlens=whole, return_lse=True,
                                  ctx=ctx)
    return (o[0], lse[0], None) if return_attn_probs else o[0]


def llama3_flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                                           heads_k_stride, local_k_slice, dropout_p=0.0, softmax_scale=None,
                                           causal=False, window_size=(-1, -1), alibi_slopes=None, deterministic=False,
                                           return_attn_probs=False, group=None):
    """kv [rows, 2, Hkv, D]"""
    return llama3_flash_attn_varlen_func(q, kv[:, 0], kv[:, 1], cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                                         heads_k_stride, local_k_slice, dropout_p, softmax_scale, causal, window_size,
                                         alibi_slopes, deterministic, return_attn_probs, group)


def llama3_flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, heads_k_stride,
                                            local_k_slice, dropout_p=0.0, softmax_scale=None, causal=False,
                                            window_size=(-1, -1), alibi_slopes=None, deterministic=False,
                                            return_attn_probs=False, group=None):
    """qkv [rows, 3, H, D]"""
    return llama3_flash_attn_varlen_func(qkv[:, 0], qkv[:, 1], qkv[:, 2], cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                         max_seqlen_k, heads_k_stride, local_k_slice, dropout_p, softmax_scale, causal,
                                         window_size, alibi_slopes, deterministic, return_attn_probs, group)


# ---- transformers

_ring_on = [True]


def update_ring_flash_attn_params(cu_seqlens: Tensor, process_group: Any) -> None:
    """The documents of the packed sequence at hand, of which each rank has one run."""
    ctx = for_group(process_group, "contiguous")
    ctx.seq_len, ctx.cu_seqlens = int(cu_seqlens[-1]), cu_seqlens.to("cpu", torch.int64)


def use_ring_attn(flag: bool) -> None:
    """False: models with flash_attention_2 use what they had before substitute_hf_flash_attn."""
    _ring_on[0] = flag


def substitute_hf_flash_attn(process_group: Any, heads_k_stride: int = 1) -> None:
    """transformers' "flash_attention_2" becomes ring attention over the group; heads_k_stride has no effect."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = ALL_ATTENTION_FUNCTIONS["flash_attention_2"]
    before = getattr(before, "before_ringattn", before)

    def forward(module: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **extra: Any) -> Any:
        if not _ring_on[0]:
            return before(module, query, key, value, *rest, **extra)
        return hf.attention_forward(module, query, key, value, *rest,
                                    ctx=for_group(process_group, "contiguous"), **extra)

    forward.before_ringattn = before
    ALL_ATTENTION_FUNCTIONS["flash_attention_2"] = forward
