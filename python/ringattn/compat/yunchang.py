"""yunchang's LongContextAttention: its rings, without its splitting of heads, which ringattn does without.

Ranks that were to split heads (ulysses) are ranks of the ring here, so a sequence that was cut for ulysses_degree 1
is cut right.
"""
from __future__ import annotations

from typing import Any, Optional, Tuple

from torch import Tensor, nn

from ..errors import ArgumentError, UnsupportedError
from . import ring_flash_attn as rf

_RINGS = {"basic": rf.ring_flash_attn_func,
          "zigzag": rf.zigzag_ring_flash_attn_func,
          "strip": rf.stripe_flash_attn_func}


def set_seq_parallel_pg(sp_ulysses_degree: int, sp_ring_degree: int, rank: int, world_size: int,
                        use_ulysses_low: bool = True) -> None:
    """Checks that the sequence is cut over one ring of all ranks, which is the default group."""
    if sp_ulysses_degree != 1 or sp_ring_degree != world_size:
        raise UnsupportedError(f"ulysses degree {sp_ulysses_degree} and ring degree {sp_ring_degree} of "
                               f"{world_size} ranks: ringattn splits no heads; use ulysses degree 1 and cut the "
                               f"sequence over all ranks")


class LongContextAttention(nn.Module):
    """query, key, value [B, rows, H, D], this rank's as ring_impl_type ("basic", "zigzag", "strip") cuts them -> the
    same. attn_type, which chose a kernel, is taken and has no effect, as have use_pack_qkv and use_sync."""

    def __init__(self, scatter_idx: int = 2, gather_idx: int = 1, ring_impl_type: str = "basic",
                 use_pack_qkv: bool = False,
                 use_sync: bool = False, attn_type: Any = None, attn_processor: Any = None, group: Any = None) -> None:
        super().__init__()
        if ring_impl_type not in _RINGS:
            raise ArgumentError(f"ring_impl_type is {ring_impl_type!r}; it must be one of {', '.join(_RINGS)}")
        if (scatter_idx, gather_idx) != (2, 1):
            raise ArgumentError("tensors are [batch, rows, heads, dim]: scatter_idx 2, gather_idx 1")
        if attn_processor is not None:
            raise UnsupportedError("attn_processor: ringattn's own attention is computed, and no other")
        self.ring, self.group = _RINGS[ring_impl_type], group

    def forward(self, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0,
                softmax_scale: Optional[float] = None, causal: bool = False, window_size: Tuple[int, int] = (-1, -1),
                softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
                return_attn_probs: bool = False) -> Tensor:
        if softcap:
            raise UnsupportedError("softcap: ringattn has none; give 0")
        if return_attn_probs:
            raise UnsupportedError("return_attn_probs: the probabilities are never made")
        return self.ring(query, key, value, dropout_p, softmax_scale, causal, window_size, alibi_slopes, deterministic,
                         False, self.group)
