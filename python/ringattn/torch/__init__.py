"""ringattn for PyTorch: attention over a sequence cut across ranks, and what training with it needs.

    import ringattn.torch as rt
    ctx = rt.init()                                            # from the default process group, under torchrun
    batch = rt.shard_batch({"input_ids": ids, "labels": labels}, ctx=ctx)
    o = rt.attention(q, k, v, seq_len=n, causal=True, ctx=ctx)   # [B, rows, H, D], this rank's rows
    loss = rt.cross_entropy(logits, batch["shift_labels"], batch["num_items_in_batch"], ctx)

docs/python.md has the rules of training with it.
"""
from .batch import ShardedLoader, shard_batch
from .checkpoint import save_attention
from .connect import init, run_ranks
from .context import Context, current
from .functional import attention, cross_entropy, mean_loss, shard, unshard
from .modules import DilatedAttention, MultiheadDilatedAttention, RingAttention

__all__ = [
    "Context", "DilatedAttention", "MultiheadDilatedAttention", "RingAttention", "ShardedLoader", "attention",
    "cross_entropy", "current", "init", "mean_loss", "run_ranks", "save_attention", "shard", "shard_batch", "unshard",
]
