"""transformers: attn_implementation="ringattn".

    import ringattn.hf, ringattn.torch as rt
    ctx = rt.init()
    ringattn.hf.register()
    model = AutoModelForCausalLM.from_config(config, attn_implementation="ringattn")
    batch = rt.shard_batch({"input_ids": ids, "labels": labels}, ctx=ctx)
    logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits

The model sees this rank's rows; shard_batch tells the context how long the sequence is and where its documents are.
What the library does not compute is refused with a sentence that names it, never left out.
"""
from __future__ import annotations

import operator
from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch._guards import detect_fake_mode

from .errors import ArgumentError, UnsupportedError
from .torch.batch import kept_tokens
from .torch.context import Context, current
from .torch.functional import attention

_chosen: list = []  # the context that register() was given, if any


def register(ctx: Optional[Context] = None, name: str = "ringattn") -> None:
    """Makes the attention and its mask function known to transformers under this name. ctx: default the current one,
    asked for at each call."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    _chosen[:] = [ctx] if ctx is not None else []
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, mask)


def _context() -> Context:
    return current(_chosen[0] if _chosen else None)


def _name_of(function: Any) -> str:
    try:
        return function.__qualname__  # not by getattr: in a graph that finds no name of a function that holds a tensor
    except AttributeError:
        return type(function).__name__


def _names_in(function: Any) -> set:
    """The names of the functions that a mask function was put together from, however deep; of other objects that can be
    called, the names of their classes."""
    names, seen, left = set(), set(), [function]
    while left:
        inside = left.pop()
        if isinstance(inside, (tuple, list)):
            left.extend(inside)
        elif callable(inside) and id(inside) not in seen:
            seen.add(id(inside))
            names.add(_name_of(inside))
            left.extend(cell.cell_contents for cell in getattr(inside, "__closure__", None) or ())
    return names


# The functions that transformers puts masks together from and that are computed, or that are said otherwise. Those that
# it uses for packed documents have indices counted from the document's first token, as they are computed here.
_MASKS = {"causal_mask_function", "bidirectional_mask_function", "sliding_window_overlay",
          "sliding_window_bidirectional_overlay", "and_masks", "padding_mask_function", "packed_sequence_mask_function",
          "remap_positions_for_packed_sequence", "add_offsets_to_mask_function"}


def _check_packing(rows: Optional[int]) -> None:
    """With one rank, positions that jump are documents; they are computed where shard_batch was told of them. While a
    model is traced transformers has a mask for documents whatever the positions are, so nothing is asked for then."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or detect_fake_mode() is not None:
        return
    ctx = _context()
    told = ctx.cu_seqlens is not None and rows in (None, ctx.seq_len)
    if ctx.ranks == 1 and not told:
        raise UnsupportedError("position_ids begin anew, as those of packed documents do, but no documents are known "
                               "for this batch; give cu_seqlens to ringattn.torch.shard_batch")


def mask(*_sizes: Any, q_length: Optional[int] = None, mask_function: Any = None,
         attention_mask: Optional[Tensor] = None, **_how: Any) -> None:
    """No mask is needed: causality, windows and documents are said otherwise. Padding that matters is refused.

    transformers takes the jumps in a cut sequence's positions for documents. With several ranks what mask_function
    makes of them is ignored on purpose: documents come from shard_batch.
    """
    made_of = {name.split(".")[0] for name in _names_in(mask_function)}
    if "chunked_overlay" in made_of:
        raise UnsupportedError("ringattn has no chunked attention (config.attention_chunk_size)")
    if made_of - _MASKS:
        unknown = ", ".join(sorted(made_of - _MASKS))
        raise UnsupportedError(f"ringattn does not know the mask function {unknown}; it has causal masks, windows and "
                               "documents")
    if "packed_sequence_mask_function" in made_of:
        _check_packing(q_length)
    if attention_mask is not None:
        kept = kept_tokens(attention_mask)
        if kept.dim() != 2:
            raise UnsupportedError("ringattn takes no attention masks of pairs; use causal, windows or documents")
        if bool((kept[:, 1:] & ~kept[:, :-1]).any()):
            raise UnsupportedError("attention_mask has padding before tokens; pad to the right, or pack documents with "
                                   "ringattn.torch.shard_batch")
        if any("bidirectional" in name for name in made_of) and not bool(kept.all()):
            raise UnsupportedError("attention_mask has padding, which attention that is not causal would see; pack "
                                   "documents with ringattn.torch.shard_batch")
    return None


def _refuse(dropout: float, softcap: Any, s_aux: Any, attention_mask: Any, extra: dict) -> None:
    if dropout:
        raise UnsupportedError("ringattn has no dropout: set config.attention_dropout to 0, or call model.eval()")
    if softcap is not None:
        raise UnsupportedError("ringattn has no softcap (config.attn_logit_softcapping)")
    if s_aux is not None or extra.get("sinks") is not None:
        raise UnsupportedError("ringattn has no attention sinks (s_aux)")
    if extra.get("position_bias") is not None:
        raise UnsupportedError("ringattn has no additive bias (position_bias)")
    if extra.get("head_mask") is not None:
        raise UnsupportedError("ringattn masks no heads (head_mask)")
    if attention_mask is not None:
        raise UnsupportedError("ringattn takes no attention masks of pairs; use causal, windows or documents")


def _sequence(ctx: Context, query: Tensor, key: Tensor) -> Tuple[int, int, Optional[Tensor]]:
    """The whole lengths of queries and keys, and the documents."""
    rows = query.shape[2]
    n, own = ctx.sizes()
    if n is not None and own == rows == key.shape[2]:
        return n, n, ctx.cu_seqlens
    if ctx.ranks == 1:
        return rows, key.shape[2], None
    if n is None:
        raise ArgumentError(
            "the length of the whole sequence is not known: cut each batch with ringattn.torch.shard_batch")
    raise ArgumentError(f"this rank has {own} rows of the batch that shard_batch was last called "
                        f"for, but the model has {rows} queries and {key.shape[2]} keys; caches are for one rank only")


def _check_offsets(ctx: Context, module: Any, extra: dict, documents: Optional[Tensor]) -> None:
    """Documents that a data collator has given the model must be those that shard_batch was told.

    Reading them waits for a GPU, so that is done once and not in every layer: the context keeps the tensors that
    agreed. Those of inference mode do not say whether they were written to; they are taken for what they were as long
    as layers follow one another upwards, that is, until the model is called again.
    """
    given = extra.get("cu_seq_lens_q")
    if given is None:
        return
    both = [given] if documents is None else [given, documents]
    if torch.compiler.is_compiling():
        _compare_offsets(given, documents)
        return
    written = [None if x.is_inference() else x._version for x in both]  # which writing to a tensor changes
    layer = getattr(module, "layer_idx", None)
    if ctx.agreed is not None:
        tensors, were_written, last = ctx.agreed
        same = were_written == written and len(tensors) == len(both) and all(map(operator.is_, tensors, both))
        later = layer is not None and last is not None and layer > last
        if same and (later or None not in written):
            ctx.agreed = (both, written, layer)
            return
    _compare_offsets(given, documents)
    ctx.agreed = (both, written, layer)


def _compare_offsets(given: Tensor, documents: Optional[Tensor]) -> None:
    known = [] if documents is None else documents.tolist()
    if given.tolist() != known and not (documents is None and len(given) == 2):
        raise ArgumentError(f"cu_seq_lens_q is {given.tolist()}, but shard_batch was told of the documents {known}; "
                            "give it them as cu_seqlens")


def attention_forward(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor] = None,
                      dropout: float = 0.0, scaling: Optional[float] = None, sliding_window: Optional[int] = None,
                      softcap: Optional[float] = None, is_causal: Optional[bool] = None, s_aux: Optional[Tensor] = None,
                      ctx: Optional[Context] = None, **extra: Any) -> Tuple[Tensor, None]:
    """query [B, H, rows, D], key, value [B, Hkv, rows, D] -> ([B, rows, H, D], None)."""
    _refuse(dropout, softcap, s_aux, attention_mask, extra)
    ctx = ctx or _context()
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    seq_q, seq_k, documents = _sequence(ctx, query, key)
    _check_offsets(ctx, module, extra, documents)
    # transformers counts the query itself; a window that is not causal reaches as far the other way.
    reach = -1 if sliding_window is None else sliding_window - 1
    o = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), seq_len=seq_q, seq_len_k=seq_k,
                  causal=causal, window=(reach, -1 if causal else reach), scale=scaling, cu_seqlens=documents, ctx=ctx)
    return o, None
