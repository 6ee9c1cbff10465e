"""Attention as modules: RingAttention, DilatedAttention, MultiheadDilatedAttention. All take this rank's rows."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

from torch import Tensor, nn

from ..errors import ArgumentError
from ..problem import Dilated, DilatedLike, window_of
from .context import Context
from .functional import attention


class RingAttention(nn.Module):
    """attention() with its settings kept: q [B, rows, H, D], k, v [B, rows, Hkv, D] -> o [B, rows, H, D]."""

    def __init__(self, causal: bool = False, window: Tuple[int, int] = (-1, -1), scale: Optional[float] = None,
                 dilated: DilatedLike = None, ctx: Optional[Context] = None) -> None:
        super().__init__()
        self.causal, self.window, self.scale = causal, window_of(window), scale
        self.dilated, self.ctx = Dilated.of(dilated), ctx

    def extra_repr(self) -> str:
        return f"causal={self.causal}, window={self.window}, scale={self.scale}, dilated={self.dilated}"

    def forward(self, q: Tensor, k: Tensor, v: Tensor, seq_len: Optional[int] = None, cu_seqlens: Any = None) -> Tensor:
        return attention(q, k, v, seq_len=seq_len, causal=self.causal, window=self.window, scale=self.scale,
                         cu_seqlens=cu_seqlens, dilated=self.dilated, ctx=self.ctx)


class DilatedAttention(nn.Module):
    """Dilated attention with the settings of dilated-attention-pytorch: heads are dealt to the branches, a branch's
    offset is its index modulo its rate, and each branch has a softmax of its own.

    q, k, v [B, rows, H, D] -> [B, rows, H, D]; the outputs of the branches are averaged, as there (docs/dilated.md).
    """

    def __init__(self, segment_lengths: Sequence[int], dilation_rates: Sequence[int],
                 softmax_scale: Optional[float] = None, attention_dropout: float = 0.0,
                 ctx: Optional[Context] = None) -> None:
        super().__init__()
        if len(segment_lengths) != len(dilation_rates):
            raise ArgumentError("segment_lengths and dilation_rates must have the same length")
        if not segment_lengths:
            raise ArgumentError("segment_lengths must not be empty")
        if attention_dropout:
            raise ArgumentError("attention_dropout: ringattn has no dropout; give 0")
        self.pattern = Dilated(tuple(zip(segment_lengths, dilation_rates)), "groups", "group", "mean")
        self.softmax_scale, self.ctx = softmax_scale, ctx

    def extra_repr(self) -> str:
        return f"{self.pattern}, softmax_scale={self.softmax_scale}"

    def forward(self, query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False,
                seq_len: Optional[int] = None) -> Tensor:
        return attention(query, key, value, seq_len=seq_len, causal=is_causal, scale=self.softmax_scale,
                         dilated=self.pattern, ctx=self.ctx)


class MultiheadDilatedAttention(nn.Module):
    """DilatedAttention between projections, as in MAGNETO: query, key, value [B, rows, embed_dim] -> ([B, rows,
    embed_dim], None)."""

    def __init__(self, embed_dim: int, num_heads: int, dilation_rates: Sequence[int], segment_lengths: Sequence[int],
                 dropout: float = 0.0, bias: bool = True, layer_norm: bool = True, layer_norm_eps: float = 1e-5,
                 gamma_init: float = 1.0, device: Optional[Any] = None, dtype: Optional[Any] = None,
                 ctx: Optional[Context] = None) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ArgumentError(f"embed_dim ({embed_dim}) must be divisible by num_heads ({num_heads})")
        made = {"device": device, "dtype": dtype}
        self.num_heads, self.layer_norm, self.gamma_init = num_heads, layer_norm, gamma_init
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **made)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **made)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **made)
        self.attention = DilatedAttention(segment_lengths, dilation_rates, attention_dropout=dropout, ctx=ctx)
        self.norm = nn.LayerNorm(embed_dim, eps=layer_norm_eps, **made) if layer_norm else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **made)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        # MAGNETO: the projections of values and outputs have a gain, those of queries and keys none.
        for projection, gain in ((self.q_proj, 1.0), (self.k_proj, 1.0), (self.v_proj, self.gamma_init),
                                 (self.out_proj, self.gamma_init)):
            nn.init.xavier_normal_(projection.weight, gain=gain)
            if projection.bias is not None:
                nn.init.constant_(projection.bias, 0)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False,
                seq_len: Optional[int] = None) -> Tuple[Tensor, None]:
        split = lambda x: x.unflatten(-1, (self.num_heads, -1))
        x = self.attention(split(self.q_proj(query)), split(self.k_proj(key)), split(self.v_proj(value)), is_causal,
                           seq_len)
        x = x.flatten(-2)
        if self.norm is not None:
            x = self.norm(x)
        return self.out_proj(x), None
