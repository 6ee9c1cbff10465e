"""A tiny Llama with its sequence cut over ranks that are threads: loss and gradients are those of one process with
SDPA."""
import copy
import functools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import ringattn  # noqa: E402
import ringattn.hf  # noqa: E402
import ringattn.torch as rt  # noqa: E402
from ringattn.compat import ring_flash_attn as rf  # noqa: E402

N = 43


def tiny(implementation, **change):
    config = transformers.LlamaConfig(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                                      **change)
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).double()


def batch_of(packed, batch=1):
    torch.manual_seed(1)
    ids = torch.randint(0, 61, (batch, N))
    whole = {"input_ids": ids, "labels": ids.clone()}
    if packed:
        starts = [0, 9, 10, 30, N]
        whole["position_ids"] = torch.cat([torch.arange(b - a) for a, b in zip(starts, starts[1:])])[None]
        whole["labels"][:, [a for a in starts[:-1]]] = -100
    return whole


def by_hand(model, whole, documents):
    """One process: each document for itself, then the mean over all labels."""
    total, count = 0.0, 0
    for row in range(whole["input_ids"].shape[0]):
        for start, end in zip(documents, documents[1:]):
            logits = model(input_ids=whole["input_ids"][row:row + 1, start:end]).logits[0, :-1]
            labels = whole["labels"][row, start + 1:end]
            total = total + torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
            count += int((labels != -100).sum())
    return total / count


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def close(got, want):
    """Every gradient within 1e-6 of the largest of its parameter's; the worst of them."""
    off = {name: float((got[name] - want[name]).abs().max() / want[name].abs().max().clamp_min(1e-12)) for name in want}
    worst = max(off, key=off.get)
    assert off[worst] < 1e-6, (worst, off[worst])
    return off[worst]


@pytest.fixture(autouse=True)
def registered():
    ringattn.hf.register()


@pytest.mark.parametrize("packed, batch, layout", [(False, 1, "auto"), (False, 2, "auto"), (True, 1, "auto"),
                                                    (True, 1, "documents"), (False, 1, "documents")])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_loss_and_gradients(ranks, packed, batch, layout):
    whole = batch_of(packed, batch)
    expected = tiny("sdpa")
    loss = by_hand(expected, whole, [0, 9, 10, 30, N] if packed else [0, N])
    loss.backward()
    model = tiny("ringattn")

    def body(ctx):
        mine = copy.deepcopy(model)
        own = rt.shard_batch(whole, ctx=ctx)
        logits = mine(input_ids=own["input_ids"], position_ids=own["position_ids"]).logits
        local = rt.cross_entropy(logits, own["shift_labels"], own["num_items_in_batch"], ctx)
        local.backward()
        return float(rt.mean_loss(local, ctx)), gradients(mine)

    results = rt.run_ranks(ranks, body, layout=layout)
    for mean, _ in results:
        assert abs(mean - loss.item()) < 1e-9 * abs(loss.item()) + 1e-12
    # What DDP, FSDP and ZeRO do: the mean over the ranks.
    close({name: sum(grads[name] for _, grads in results) / ranks for name in results[0][1]}, gradients(expected))


def test_padding_to_the_right():
    whole = batch_of(False, 2)
    mask = torch.ones(2, N, dtype=torch.long)
    mask[1, 30:] = 0
    own = rt.run_ranks(2, lambda ctx: rt.shard_batch({**whole, "attention_mask": mask}, ctx=ctx))
    labels = torch.cat([p["shift_labels"][1] for p in own])
    assert int((labels != -100).sum()) == 29 and int(own[0]["num_items_in_batch"]) == 29 + N - 1
    with pytest.raises(ringattn.ArgumentError, match="padding before tokens"):
        rt.run_ranks(1, lambda ctx: rt.shard_batch({**whole, "attention_mask": mask.flip(1)}, ctx=ctx))


def test_loader_cuts_every_batch():
    """Each rank's rows of each batch together are the batch; what is no sequence stays as it is."""
    batches = [{"input_ids": torch.arange(2 * n).view(2, n), "labels": torch.arange(2 * n).view(2, n), "name": n}
               for n in (5, 9)]

    def body(ctx):
        loader = rt.ShardedLoader(batches, ctx)
        assert len(loader) == 2
        return [(own["input_ids"], own["shift_labels"], own["position_ids"], own["name"]) for own in loader]

    results = rt.run_ranks(3, body)
    for i, batch in enumerate(batches):
        n = batch["name"]
        ids = torch.cat([result[i][0] for result in results], 1)
        labels = torch.cat([result[i][1] for result in results], 1)
        positions = torch.cat([result[i][2] for result in results], 1)
        assert ids.sort(1).values.equal(batch["input_ids"]) and results[0][i][3] == n
        assert positions.equal(ids % n)
        assert labels.equal(torch.where(positions == n - 1, torch.tensor(-100), ids + 1))


def test_sliding_window():
    """transformers counts the query itself in its window."""
    config = transformers.MistralConfig(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                        num_attention_heads=4, num_key_value_heads=2, sliding_window=7)
    outs = []
    for implementation in ("sdpa", "ringattn"):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).double()
        ids = batch_of(False)["input_ids"]
        if implementation == "sdpa":
            outs.append(model(input_ids=ids).logits.detach())
        else:
            def body(ctx):
                own = rt.shard_batch({"input_ids": ids}, ctx=ctx)
                with torch.no_grad():
                    logits = model(input_ids=own["input_ids"], position_ids=own["position_ids"]).logits
                return rt.unshard(logits, 1, ctx)

            outs += rt.run_ranks(3, body)
    for got in outs[1:]:
        assert (got - outs[0]).abs().max() < 1e-10


def test_generation_with_one_rank():
    """A cache makes queries and keys of different lengths."""
    ids = batch_of(False)["input_ids"][:, :6]
    how = dict(max_new_tokens=6, do_sample=False, pad_token_id=0)
    want = tiny("sdpa").generate(ids, **how)
    ctx = rt.init()
    try:
        assert (tiny("ringattn").generate(ids, **how) == want).all()
    finally:
        ctx.close()


@pytest.mark.parametrize("change, words", [
    (dict(dropout=0.1), "dropout"), (dict(softcap=30.0), "softcap"), (dict(s_aux=torch.zeros(4)), "sinks"),
    (dict(attention_mask=torch.zeros(1, 1, 5, 5)), "masks of pairs"), (dict(position_bias=torch.zeros(1)), "bias"),
    (dict(head_mask=torch.ones(4)), "head_mask"),
])
def test_what_is_not_computed_is_refused(change, words):
    x = torch.randn(1, 4, 5, 8)
    with pytest.raises(ringattn.UnsupportedError, match=words):
        ringattn.hf.attention_forward(torch.nn.Module(), x, x, x, **change)


def test_masks_that_matter_are_refused():
    left = torch.ones(2, 6, dtype=torch.long)
    left[0, :2] = 0
    ctx = rt.init()
    try:
        with pytest.raises(ringattn.UnsupportedError, match="padding before tokens"):
            tiny("ringattn")(input_ids=torch.zeros(2, 6, dtype=torch.long), attention_mask=left)
    finally:
        ctx.close()
    from transformers import masking_utils as masks

    chunked = masks.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long))
    with pytest.raises(ringattn.UnsupportedError, match="chunked"):
        ringattn.hf.mask(mask_function=chunked)

    def images(*_):
        return True

    with pytest.raises(ringattn.UnsupportedError, match="does not know the mask function"):
        ringattn.hf.mask(mask_function=masks.and_masks(masks.causal_mask_function, images))
    # Tokens that see what follows see padding to the right.
    right = left.flip(1)
    assert ringattn.hf.mask(mask_function=masks.causal_mask_function, attention_mask=right) is None
    for seen in (masks.bidirectional_mask_function, masks.sliding_window_bidirectional_mask_function(4)):
        with pytest.raises(ringattn.UnsupportedError, match="not causal"):
            ringattn.hf.mask(mask_function=seen, attention_mask=right)
        assert ringattn.hf.mask(mask_function=seen, attention_mask=torch.ones(2, 6)) is None


def test_mask_functions_are_known_by_name_however_deep():
    from transformers import masking_utils as masks

    def images(*_):
        return True

    class Images:
        def __call__(self, *_):
            return True

    def nested(function):
        for _ in range(9):
            function = masks.and_masks(masks.causal_mask_function, function)
        return function

    for unknown, name in ((images, "test_mask_functions"), (Images(), "Images"),
                          (functools.partial(images), "partial")):
        for given in (unknown, nested(unknown)):
            with pytest.raises(ringattn.UnsupportedError, match=f"does not know the mask function {name}"):
                ringattn.hf.mask(mask_function=given)
    assert ringattn.hf.mask(mask_function=nested(masks.sliding_window_causal_mask_function(4))) is None
    if hasattr(masks, "remap_positions_for_packed_sequence"):  # transformers 5.23, not yet 5.17
        counted = functools.partial(masks.remap_positions_for_packed_sequence, position_ids=torch.arange(6)[None])
        assert ringattn.hf.mask(mask_function=counted(masks.causal_mask_function)) is None
        with pytest.raises(ringattn.UnsupportedError, match="does not know the mask function test_mask_functions"):
            ringattn.hf.mask(mask_function=counted(images))


def test_packed_positions_need_documents_with_one_rank():
    """transformers sees documents in positions that jump; without shard_batch nothing else says that there are any."""
    ids = torch.arange(12)[None] % 7
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]])
    ctx = rt.init()
    try:
        model = tiny("ringattn").eval()
        how = dict(use_cache=False)
        with torch.no_grad():
            with pytest.raises(ringattn.UnsupportedError, match="give cu_seqlens to .*shard_batch"):
                model(input_ids=ids, position_ids=positions, **how)
            batch = rt.shard_batch({"input_ids": ids, "position_ids": positions}, ctx=ctx)
            got = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], **how).logits
            want = tiny("sdpa").eval()(input_ids=ids, position_ids=positions, **how).logits
            assert (got - want).abs().max() < 1e-10
            # The documents of a batch of another length are not this one's.
            with pytest.raises(ringattn.UnsupportedError, match="give cu_seqlens to .*shard_batch"):
                model(input_ids=ids[:, :9], position_ids=positions[:, :9], **how)
            rt.shard_batch({"input_ids": ids}, ctx=ctx)
            assert model(input_ids=ids, **how).logits.shape == (1, 12, 61)
    finally:
        ctx.close()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:`torch.jit")
def test_traced_models_are_not_taken_for_packed():
    """While a model is traced transformers has a mask for documents whatever the positions are."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import masking_utils as masks

    packed = masks.and_masks(masks.causal_mask_function, masks.packed_sequence_mask_function(torch.zeros(1, 6)))

    def f(x):
        ringattn.hf.mask(q_length=6, mask_function=packed)
        return x + 1

    ctx = rt.init()
    try:
        x = torch.zeros(6)
        with pytest.raises(ringattn.UnsupportedError, match="shard_batch"):
            f(x)
        assert (torch.compile(f, backend="eager")(x) == 1).all()
        assert (torch.jit.trace(f, (x,), check_trace=False)(x) == 1).all()
        with FakeTensorMode():
            assert f(torch.zeros(6)).shape == (6,)
        ids = batch_of(False)["input_ids"]
        model = tiny("ringattn").eval()
        with torch.no_grad():
            got = torch.compile(model, backend="eager")(input_ids=ids, use_cache=False).logits
            assert (got - model(input_ids=ids, use_cache=False).logits).abs().max() < 1e-10
    finally:
        ctx.close()


def test_a_compiled_model_is_one_graph():
    """For all lengths, but for the first, whose numbers torch takes for fixed; packed or not."""
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    ids = batch_of(False)["input_ids"]
    ctx = rt.init()
    try:
        model, want = tiny("ringattn").eval(), tiny("sdpa").eval()
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        with torch.no_grad():
            for n in (43, 37, 29, 41):
                for starts in ((), (0, 9)):
                    packed = None if not starts else torch.cat([torch.arange(9), torch.arange(n - 9)])[None]
                    own = rt.shard_batch({"input_ids": ids[:, :n], "position_ids": packed}, ctx=ctx)
                    how = dict(input_ids=own["input_ids"], position_ids=own["position_ids"], use_cache=False)
                    assert (compiled(**how).logits - want(**how).logits).abs().max() < 1e-10
        assert len(graphs) <= 4
    finally:
        ctx.close()


def test_documents_that_shard_batch_was_not_told_are_refused():
    """As data collators that flatten give them; they would be left out."""
    ids, cu = torch.zeros(1, 12, dtype=torch.long), torch.tensor([0, 5, 12], dtype=torch.int32)
    ctx = rt.init()
    try:
        ringattn.hf.register()
        model = tiny("ringattn")
        how = dict(cu_seq_lens_q=cu, cu_seq_lens_k=cu, max_length_q=7, max_length_k=7)
        for told in (None, [0, 6, 12]):
            batch = rt.shard_batch({"input_ids": ids}, ctx=ctx, cu_seqlens=told)
            with pytest.raises(ringattn.ArgumentError, match="cu_seq_lens_q"):
                model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], **how)
        batch = rt.shard_batch({"input_ids": ids}, ctx=ctx, cu_seqlens=cu)
        model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], **how)
    finally:
        ctx.close()


def test_offsets_are_read_once_for_all_layers(monkeypatch):
    """... and again when they, or the documents, are others or were written to."""
    ctx = rt.init()
    read = []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: (read.append(x), tolist(x))[1])
    x = torch.randn(1, 2, 12, 8)

    def reads(given, documents, layer=None):
        """How often a layer reads the offsets that it is given."""
        read.clear()
        ctx.seq_len, ctx.cu_seqlens = 12, documents
        module = torch.nn.Module()
        if layer is not None:
            module.layer_idx = layer
        ringattn.hf.attention_forward(module, x, x, x, cu_seq_lens_q=given, ctx=ctx)
        return sum(one is given for one in read)

    try:
        given, documents = torch.tensor([0, 5, 12], dtype=torch.int32), torch.tensor([0, 5, 12])
        assert reads(given, documents) > 0 and reads(given, documents) == 0
        assert reads(given.clone(), documents) > 0 and reads(given, documents.clone()) > 0
        assert reads(given, documents) > 0 and reads(given, documents) == 0
        for written in (given, documents):
            written[1] = 6
            with pytest.raises(ringattn.ArgumentError, match="cu_seq_lens_q"):
                reads(given, documents)
            written[1] = 5
            assert reads(given, documents) > 0 and reads(given, documents) == 0
        with pytest.raises(ringattn.ArgumentError, match="cu_seq_lens_q"):
            reads(given, None)
        whole = torch.tensor([0, 12])
        assert reads(whole, None) > 0 and reads(whole, None) == 0
        with torch.inference_mode():  # whose tensors do not say whether they were written to
            unknown = torch.tensor([0, 5, 12])
            assert reads(unknown, documents) > 0 and reads(unknown, documents) > 0
            for _ in range(2):  # of the model
                assert reads(unknown, documents, 0) > 0
                assert reads(unknown, documents, 1) == 0 and reads(unknown, documents, 2) == 0
            unknown[1] = 6
            with pytest.raises(ringattn.ArgumentError, match="cu_seq_lens_q"):
                reads(unknown, documents, 0)
    finally:
        ctx.close()


def test_batch_without_shard_batch_is_refused():
    with pytest.raises(ringattn.ArgumentError, match="shard_batch"):
        rt.run_ranks(2, lambda ctx: tiny("ringattn")(input_ids=torch.zeros(1, 6, dtype=torch.long)))


def test_substitute_hf_flash_attn():
    """Documents wherever they fall over ranks with a run each; the switch brings back what was before."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    cu, n = [0, 9, 10, 30, 44], 44
    torch.manual_seed(1)
    ids = torch.randint(0, 61, (1, n))
    model = tiny("sdpa")
    with torch.no_grad():
        want = torch.cat([model(input_ids=ids[:, a:b]).logits for a, b in zip(cu, cu[1:])], 1)
    positions = torch.cat([torch.arange(b - a) for a, b in zip(cu, cu[1:])])[None]
    before = ALL_ATTENTION_FUNCTIONS["flash_attention_2"]
    model.config._attn_implementation = "flash_attention_2"

    def body(ctx):
        rf.update_ring_flash_attn_params(torch.tensor(cu), None)
        rows = n // ctx.ranks
        mine = slice(rows * ctx.rank, rows * ctx.rank + rows)
        with torch.no_grad():
            return model(input_ids=ids[:, mine], position_ids=positions[:, mine]).logits

    try:
        rf.substitute_hf_flash_attn(None, heads_k_stride=1)
        for ranks in (1, 2, 4):
            assert (torch.cat(rt.run_ranks(ranks, body), 1) - want).abs().max() < 1e-10
        rf.use_ring_attn(False)
        with pytest.raises(ImportError):
            rt.run_ranks(1, body)
    finally:
        rf.use_ring_attn(True)
        ALL_ATTENTION_FUNCTIONS["flash_attention_2"] = before
