"""shard_batch takes batches as data collators make them, or says what is wrong with them."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import ringattn  # noqa: E402
import ringattn.torch as rt  # noqa: E402

IDS = torch.arange(20).view(2, 10)
ONE = torch.arange(10)[None]


def cut(batch, ranks=2, **how):
    return rt.run_ranks(ranks, lambda ctx: rt.shard_batch(batch, ctx=ctx, **how))


def test_embeddings_beside_an_entry_of_none():
    own = cut({"input_ids": None, "inputs_embeds": torch.randn(2, 10, 4)})
    assert [tuple(part["inputs_embeds"].shape) for part in own] == [(2, 5, 4)] * 2


def test_positions_of_several_kinds():
    """[kinds, B, S], as models for images have them; with B = S a cut of the batch would go unnoticed."""
    positions = torch.arange(300).view(3, 10, 10)
    own = cut({"input_ids": torch.zeros(10, 10, dtype=torch.long), "position_ids": positions})
    rows = torch.cat([part["position_ids"] for part in own], 2).sort(2).values
    assert torch.equal(rows, positions) and own[0]["position_ids"].shape == (3, 10, 5)


@pytest.mark.parametrize("batch, how, words", [
    ({"input_ids": ONE[0]}, {}, r"must have input_ids \[B, S\]"),
    ({"input_ids": [[1, 2]]}, {}, r"must have input_ids \[B, S\]"),
    ({"input_ids": IDS, "labels": IDS[:, :9]}, {}, "shift_labels has shape .* sequences of 10"),
    ({"input_ids": IDS, "position_ids": ONE[0]}, {}, "position_ids has shape"),
    ({"input_ids": ONE, "labels": ONE}, dict(cu_seqlens=[0, 4, 9]), "must go from 0 to 10"),
    ({"input_ids": ONE, "labels": ONE}, dict(cu_seqlens=[0, 4, 12]), "must go from 0 to 10"),
    ({"input_ids": ONE, "labels": ONE}, dict(cu_seqlens=[0, 6, 4, 10]), "not decrease"),
    ({"input_ids": ONE, "labels": ONE}, dict(cu_seqlens=torch.tensor([[0, 4, 10]])), "row of whole numbers"),
    ({"input_ids": IDS, "labels": IDS}, dict(cu_seqlens=[0, 4, 10]), "one after another"),
    ({"input_ids": IDS, "position_ids": IDS % 5}, {}, "begin anew inside"),
    ({"input_ids": ONE, "attention_mask": 1 + ONE // 5}, {}, "numbers packed documents"),
])
def test_refusals(batch, how, words):
    with pytest.raises(ringattn.ArgumentError, match=words):
        cut(batch, **how)


def test_positions_of_padding_count_for_nothing():
    """transformers gives padding position 1."""
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, 6:] = 0
    positions = (mask.cumsum(1) - 1).masked_fill(mask == 0, 1)
    own = cut({"input_ids": IDS, "labels": IDS, "attention_mask": mask, "position_ids": positions})
    assert int(own[0]["num_items_in_batch"]) == 9 + 5


def test_a_model_is_given_no_mask_that_numbers_documents():
    import ringattn.hf
    masks = pytest.importorskip("transformers.masking_utils", reason="transformers is not installed")
    with pytest.raises(ringattn.ArgumentError, match="numbers packed documents"):
        ringattn.hf.mask(mask_function=masks.causal_mask_function, attention_mask=1 + ONE // 5)
