"""DeepSpeed's DistributedAttention, with its contract: sequences that are cut in runs go in and come out cut the same
way.

Different: heads are not dealt to the ranks, so their number need not be a multiple of anything.
"""
from __future__ import annotations

from typing import Any, Optional

from torch import Tensor, nn

from ..errors import UnsupportedError
from ..torch.connect import for_group
from ..torch.functional import attention


class DistributedAttention(nn.Module):
    """local_attention says what is computed and is not called: a ringattn.torch.RingAttention, or a module with
    `causal`, `softmax_scale` and `window_size`, as flash_attn's have.

    gather_idx is the dimension of the sequence and scatter_idx that of the heads; the last one is the elements'.
    """

    def __init__(self, local_attention: nn.Module, sequence_process_group: Any, scatter_idx: int = 2,
                 gather_idx: int = 0, sp_stream: Any = None) -> None:
        super().__init__()
        if not hasattr(local_attention, "causal"):
            raise UnsupportedError(f"local_attention is a {type(local_attention).__name__}, which does not say "
                                   "whether it is causal; give a ringattn.torch.RingAttention")
        if getattr(local_attention, "drop", None) is not None and getattr(local_attention.drop, "p", 0):
            raise UnsupportedError("local_attention has dropout; ringattn has none")
        if getattr(local_attention, "alibi_slopes", None) is not None:
            raise UnsupportedError("local_attention has alibi_slopes; ringattn has no additive bias")
        if getattr(local_attention, "softcap", None):
            raise UnsupportedError("local_attention has a softcap; ringattn has none")
        self.local_attn, self.spg = local_attention, sequence_process_group
        self.scatter_idx, self.gather_idx = scatter_idx, gather_idx

    def forward(self, query: Tensor, key: Tensor, value: Tensor, batch_dim_idx: Optional[int] = None,
                rotary_pos_emb: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        """query, key, value: this rank's run, e.g. [rows, B, H, D] -> the same shape as query."""
        if rotary_pos_emb is not None or args or kwargs:
            raise UnsupportedError("DistributedAttention takes query, key, value and batch_dim_idx; rotate before it")
        ctx = for_group(self.spg, "contiguous")
        rows, heads = self.gather_idx % 4, self.scatter_idx % 4
        batch = ({0, 1, 2} - {rows, heads}).pop() if batch_dim_idx is None else batch_dim_idx
        order = (batch, rows, heads, 3)
        local = self.local_attn
        scale = getattr(local, "scale", getattr(local, "softmax_scale", None))
        window = getattr(local, "window", getattr(local, "window_size", (-1, -1)))
        o = attention(*(x.permute(order) for x in (query, key, value)),
                      seq_len=ctx.sequence_length(query.shape[rows]), causal=bool(local.causal),
                      window=tuple(window), scale=scale, dilated=getattr(local, "dilated", None), ctx=ctx)
        back = [order.index(dim) for dim in range(4)]
        return o.permute(back)
