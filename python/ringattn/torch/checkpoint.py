"""Activation checkpointing that keeps what attention gave, so that its forward pass runs once.

    checkpoint(layer, x, use_reentrant=False, context_fn=rt.save_attention)
    model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": rt.save_attention})     # transformers
"""
from __future__ import annotations

from typing import Any, Tuple

from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from . import ops


def _policy(_ctx: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op is ops.attention_op else CheckpointPolicy.PREFER_RECOMPUTE


def save_attention() -> Tuple[Any, Any]:
    """A context_fn of torch.utils.checkpoint: o [B, rows, H, Dv] and lse [B, H, rows] are kept, all else is computed
    again."""
    return create_selective_checkpoint_contexts(_policy)
