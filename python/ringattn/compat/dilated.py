"""The modules of dilated-attention-pytorch, with its settings: heads are dealt to the branches, branches are averaged.

That package divides each branch's output by its sum over the sequence; here each is a plain softmax, and the branches'
outputs are divided by their number (docs/dilated.md). The sequence need not be a multiple of anything.
"""
from __future__ import annotations

from typing import Any, Optional, Sequence

from ..torch import modules
from ..torch.context import Context


class DilatedAttention(modules.DilatedAttention):
    """q, k, v [B, rows, H, D] -> [B, rows, H, D]. `op`, which chose a kernel of xformers, is taken and has no
    effect."""

    def __init__(self, segment_lengths: Sequence[int], dilation_rates: Sequence[int],
                 softmax_scale: Optional[float] = None, attention_dropout: float = 0.0, op: Any = None,
                 ctx: Optional[Context] = None) -> None:
        super().__init__(segment_lengths, dilation_rates, softmax_scale, attention_dropout, ctx)


class MultiheadDilatedAttention(modules.MultiheadDilatedAttention):
    """query, key, value [B, rows, embed_dim] -> ([B, rows, embed_dim], None)."""

    def __init__(self, embed_dim: int, num_heads: int, dilation_rates: Sequence[int], segment_lengths: Sequence[int],
                 dropout: float = 0.0, bias: bool = True, layer_norm: bool = True, layer_norm_eps: float = 1e-5,
                 gamma_init: float = 1.0, device: Any = None, dtype: Any = None, op: Any = None,
                 ctx: Optional[Context] = None) -> None:
        super().__init__(embed_dim, num_heads, dilation_rates, segment_lengths, dropout, bias, layer_norm,
                         layer_norm_eps, gamma_init, device, dtype, ctx)


__all__ = ["DilatedAttention", "MultiheadDilatedAttention"]
