"""A batch of whole sequences, which every rank has, cut to this rank's rows."""
from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, Mapping, Optional

import torch
from torch import Tensor

from ..errors import ArgumentError
from .context import Context, current
from .functional import tensor_of

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
    return torch.cat([starts.new_zeros(1), starts, starts.new_tensor([flat.shape[0]])])


def kept_tokens(mask: Tensor) -> Tensor:
    """attention_mask as booleans. One that numbers the documents of a packed batch says more than which tokens are
    padding, and is refused."""
    if mask.dtype is not torch.bool and mask.dim() == 2 and bool((mask > 1).any()):
        raise ArgumentError("attention_mask has values above 1, as one that numbers packed documents has; give the "
                            "documents as cu_seqlens to ringattn.torch.shard_batch, and leave the mask out")
    return mask.to(torch.bool)


def _check_mask(mask: Tensor, labels: Optional[Tensor]) -> Optional[Tensor]:
    """Padding to the right is seen by no token before it; its own labels are dropped. Other padding is refused."""
    kept = kept_tokens(mask)
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
    return tensor_of(documents, "cu_seqlens")


def _check_documents(documents: Tensor, count: int, n: int) -> None:
    """Documents [documents + 1] of a batch of count sequences of n tokens. Reading them waits for a GPU that has them,
    which the context would do anyway."""
    at = documents.tolist()
    if count != 1:
        raise ArgumentError(f"cu_seqlens says where the documents of one packed sequence are, but the batch has "
                            f"{count}; put them one after another")
    if at[0] != 0 or at[-1] != n or any(a > b for a, b in zip(at, at[1:])):
        raise ArgumentError(f"cu_seqlens is {at}; it must go from 0 to {n}, the length of the sequence, and not "
                            "decrease")


def _check_positions(batch: Mapping[str, Any]) -> None:
    """Documents packed into each of several sequences, which only positions would tell of, are refused."""
    positions, mask = batch.get("position_ids"), batch.get("attention_mask")
    if positions is None or positions.dim() != 2 or positions.shape[0] == 1:
        return
    anew = positions[:, 1:] < positions[:, :-1]
    if mask is not None and mask.shape == positions.shape:
        anew = anew & mask[:, 1:].to(anew.device, torch.bool)  # those of padding count for nothing
    if bool(anew.any()):
        raise ArgumentError(f"position_ids begin anew inside the sequences of a batch of {positions.shape[0]}, as "
                            "those of packed documents do; put the documents one after another in a batch of one")


def _cut(name: str, x: Tensor, n: int, ctx: Context) -> Tensor:
    """This rank's rows of one of _SEQUENCES. Positions may have several kinds, [kinds, B, S], as those of images do."""
    dim = x.dim() - 1 if name == "position_ids" else 1
    if x.dim() < 2 or x.shape[dim] != n:
        raise ArgumentError(f"{name} has shape {list(x.shape)}, but the batch has sequences of {n} tokens")
    return x.index_select(dim, ctx.positions(n, x.device))


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
    shift_labels, position_ids [B, S] or [kinds, B, S], attention_mask [B, S] (ones, or padded to the right),
    cu_seqlens. Gives

        input_ids [B, rows], position_ids [B, rows]      what the model takes; positions are those in the whole sequence
        shift_labels [B, rows]                           labels shifted before the cut; -100 where no token is next
        num_items_in_batch                               how many labels the whole batch has, a tensor

    Other entries stay as they are. The context remembers the sequence's length and documents for the attention of this
    batch; documents are cu_seqlens, or, in a batch of one, where position_ids begin anew.
    """
    ctx = current(ctx)
    batch = dict(batch)
    tokens = batch.get("input_ids") if batch.get("input_ids") is not None else batch.get("inputs_embeds")
    if not isinstance(tokens, Tensor) or tokens.dim() < 2:
        raise ArgumentError("the batch must have input_ids [B, S] or inputs_embeds [B, S, E], a tensor")
    count, n = tokens.shape[:2]
    documents = _documents(batch, cu_seqlens)
    if documents is not None:
        _check_documents(documents, count, n)
    _check_positions(batch)
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
            batch[name] = _cut(name, batch[name], n, ctx)
    return batch


class ShardedLoader:
    """A data loader whose batches are cut by shard_batch. Every rank must get the same batches from `loader`."""

    def __init__(self, loader: Iterable[Mapping[str, Any]], ctx: Optional[Context] = None) -> None:
        self.loader, self.ctx = loader, current(ctx)

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        return (shard_batch(batch, ctx=self.ctx) for batch in self.loader)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]
