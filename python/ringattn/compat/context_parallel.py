"""torch's context_parallel, with its signature: inside it scaled_dot_product_attention works on a cut sequence.

    with context_parallel(mesh, buffers=[ids, labels, positions], buffer_seq_dims=[1, 1, 1]):
        loss = model(ids, positions)...

Different: any length, any number of ranks; the mask of queries and keys is right whatever is_causal; a call that asks
for what the library does not compute (a mask, dropout) is refused.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Set

import torch
import torch.nn.functional as functional
from torch import Tensor

from ..errors import ArgumentError, UnsupportedError
from ..torch.connect import for_group
from ..torch.context import Context
from ..torch.functional import attention, unshard


def _attention_over(ctx: Context, n: int) -> Any:
    def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                     dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                     enable_gqa: bool = False) -> Tensor:
        """query [B, H, rows, D], key, value [B, Hkv, rows, D] -> [B, H, rows, D]"""
        if attn_mask is not None:
            raise UnsupportedError("attn_mask: ringattn takes no masks of pairs; use is_causal")
        if dropout_p:
            raise UnsupportedError("dropout_p: ringattn has no dropout; give 0")
        if query.shape[1] != key.shape[1] and not enable_gqa:
            raise ArgumentError("queries and keys differ in heads; give enable_gqa=True")
        o = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), seq_len=n, causal=is_causal,
                      scale=scale, ctx=ctx)
        return o.transpose(1, 2)

    return scaled_dot_product_attention


@contextmanager
def context_parallel(mesh: Any, *, buffers: Optional[List[Tensor]] = None, buffer_seq_dims: Optional[List[int]] = None,
                     no_restore_buffers: Optional[Set[Tensor]] = None) -> Iterator[None]:
    """Cuts the buffers in place, each along its dimension, and brings them back at the end but for no_restore_buffers.

    mesh: one-dimensional; or a process group, or a context. It replaces
    torch.nn.functional.scaled_dot_product_attention for the whole process meanwhile.
    """
    buffers, dims = list(buffers or []), list(buffer_seq_dims or [])
    kept = set(map(id, no_restore_buffers or ()))
    if len(buffers) != len(dims):
        raise ArgumentError(f"{len(buffers)} buffers have {len(dims)} buffer_seq_dims")
    lengths = {buffer.shape[dim] for buffer, dim in zip(buffers, dims)}
    if len(lengths) != 1:
        raise ArgumentError(f"the buffers are of lengths {sorted(lengths)}; there must be one, which is the sequence's")
    n = lengths.pop()
    ctx = for_group(mesh, "zigzag")
    wholes = [buffer.detach().clone() for buffer in buffers]
    before = functional.scaled_dot_product_attention
    with torch.no_grad():
        for buffer, whole, dim in zip(buffers, wholes, dims):
            own = whole.index_select(dim, ctx.positions(n, whole.device))
            buffer.resize_(own.shape).copy_(own)
    functional.scaled_dot_product_attention = _attention_over(ctx, n)
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before
        with torch.no_grad():
            for buffer, whole in zip(buffers, wholes):
                if id(buffer) not in kept:
                    buffer.resize_(whole.shape).copy_(whole)


def context_parallel_unshard(mesh: Any, buffers: List[Tensor], seq_dims: List[int],
                             load_balancer: Any = None) -> List[Tensor]:
    """The whole of each cut tensor, on every rank. Collective."""
    if load_balancer is not None:
        raise UnsupportedError("load_balancer: rows are cut as torch's own head-tail load balancer does it, which is "
                               "its default; give None")
    ctx = for_group(mesh, "zigzag")
    return [unshard(buffer, dim, ctx) for buffer, dim in zip(buffers, seq_dims)]
