"""A batch of whole sequences, which every rank has, cut to this rank's rows."""
from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, Mapping, Optional

import torch
from torch import Tensor

from ..errors import ArgumentError
from .context import Context, current

IGNORED = -100
_SEQUENCES = ("input_ids", "inputs_embeds", "position_ids", "token_type_ids", "shift_labels")


def shift(labels: Tensor, cu_seqlens: Optional[Tensor] = None) -> Tensor:
    """labels [B, S] -> the label of the next token of each; none (-100) for the last of a document."""
    shifted = torch.full_like(labels, IGNORED)
    shifted[:, :-1] = labels[:, 1:]
    if cu_seqlens is not None:
        ends = cu_seqlens[1:].to(labels.device)
        shifted[:, ends[ends > 0] - 1] = IGNORED
    return shifted


def documents_of(position_ids: Tensor) -> Optional[Tensor]:
    """cu_seqlens of a packed batch of one, whose positions begin anew with each document; None where they never do."""
    if position_ids.dim() != 2 or position_ids.shape[0] != 1:
        return None
    flat = position_ids[0]
    starts = torch.nonzero(flat[1:] != flat[:-1] + 1).flatten().cpu() + 1
    if len(starts) == 0:
        return None
    return torch.cat([torch.zeros(1, dtype=torch.int64), starts, torch.tensor([flat.shape[0]])])


def _check_mask(mask: Tensor, labels: Optional[Tensor]) -> Optional[Tensor]:
    """Padding to the right is seen by no token before it; its own labels are dropped. Other padding is refused."""
    kept = mask.to(torch.bool)
    if bool(kept.all()):
        return labels
    if kept.dim() != 2 or bool((kept[:, 1:] & ~kept[:, :-1]).any()):
        raise ArgumentError(
            "attention_mask has padding before tokens; pad to the right, or pack documents (cu_seqlens)")
    return None if labels is None else labels.masked_fill(~kept.to(labels.device), IGNORED)


def _documents(batch: Mapping[str, Any], cu_seqlens: Any = None) -> Optional[Tensor]:
    """cu_seqlens as given, in the batch or apart from it; else what position_ids say."""
    documents = cu_seqlens if cu_seqlens is not None else batch.get("cu_seqlens")
    if documents is None:
        positions = batch.get("position_ids")
        return None if positions is None else documents_of(positions)
    if isinstance(documents, Tensor):
        return documents
    return torch.tensor([int(at) for at in documents], dtype=torch.int64)


def shifted_labels(batch: Mapping[str, Any], cu_seqlens: Any = None) -> Optional[Tensor]:
    """[B, S]: the label of each token's next one, -100 where there is none to learn; None without labels."""
    labels, mask = batch.get("labels"), batch.get("attention_mask")
    if mask is not None:
        labels = _check_mask(mask, labels)
    if batch.get("shift_labels") is not None:
        return batch["shift_labels"]
    return None if labels is None else shift(labels, _documents(batch, cu_seqlens))


def shard_batch(batch: Mapping[str, Any], ctx: Optional[Context] = None,
                cu_seqlens: Any = None) -> Dict[str, Any]:
    """This rank's rows of a batch that every rank has whole.

    Takes input_ids [B, S] or inputs_embeds [B, S, E]; and, where they are there, labels [B, S] (not shifted),
    shift_labels, position_ids [B, S], attention_mask [B, S] (ones, or padded to the right), cu_seqlens. Gives

        input_ids [B, rows], position_ids [B, rows]      what the model takes; positions are those in the whole sequence
        shift_labels [B, rows]                           labels shifted before the cut; -100 where there is no next
        token
        num_items_in_batch                               how many labels the whole batch has, a tensor

    Other entries stay as they are. The context remembers the sequence's length and documents for the attention of this
    batch; documents are cu_seqlens, or, in a batch of one, where position_ids begin anew.
    """
    ctx = current(ctx)
    batch = dict(batch)
    tokens = batch.get("input_ids", batch.get("inputs_embeds"))
    if tokens is None:
        raise ArgumentError("the batch has neither input_ids nor inputs_embeds")
    count, n = tokens.shape[:2]
    documents = _documents(batch, cu_seqlens)
    labels = shifted_labels(batch, documents)
    for name in ("labels", "attention_mask", "cu_seqlens"):
        batch.pop(name, None)
    if batch.get("position_ids") is None:
        batch["position_ids"] = torch.arange(n, device=tokens.device).expand(count, n)
    if labels is not None:
        batch["shift_labels"] = labels
        batch.setdefault("num_items_in_batch", (labels != IGNORED).sum())
    ctx.seq_len, ctx.cu_seqlens = n, None if documents is None else documents.to("cpu", torch.int64)
    for name in _SEQUENCES:
        if batch.get(name) is not None:
            batch[name] = batch[name].index_select(1, ctx.positions(n, batch[name].device))
    return batch


class ShardedLoader:
    """A data loader whose batches are cut by shard_batch. Every rank must get the same batches from `loader`."""

    def __init__(self, loader: Iterable[Mapping[str, Any]], ctx: Optional[Context] = None) -> None:
        self.loader, self.ctx = loader, current(ctx)

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        return (shard_batch(batch, ctx=self.ctx) for batch in self.loader)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]
