"""The interfaces of other packages, with ranks that are threads, against scaled_dot_product_attention."""
import inspect

import pytest
import reference

torch = pytest.importorskip("torch", reason="torch is not installed")
import ringattn  # noqa: E402
import ringattn.torch as rt  # noqa: E402
from ringattn.compat import dilated, ring_flash_attn as rf  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

LAYOUTS = {"ring": "contiguous", "zigzag_ring": "zigzag", "stripe": "striped"}


def one_process(qkv, cu, causal):
    """qkv [T, 3, H, D] in documents -> out [T, H, D] with a graph."""
    outs = []
    for start, end in zip(cu, cu[1:]):
        q, k, v = (x[None].transpose(1, 2) for x in qkv[start:end].unbind(1))
        outs.append(sdpa(q, k, v, is_causal=causal).transpose(1, 2)[0])
    return torch.cat(outs)


def rows_of(x, layout, ranks, rank, dim=0):
    return ringattn.shard(x, dim, layout=layout, ranks=ranks, rank=rank)


@pytest.mark.parametrize("family", LAYOUTS)
@pytest.mark.parametrize("causal", [True, False])
def test_fixed_length(family, causal):
    torch.manual_seed(0)
    layout, ranks, n = LAYOUTS[family], 2, 24
    qkv = torch.randn(n, 3, 2, 8, dtype=torch.float64, requires_grad=True)
    dout = torch.randn(n, 2, 8, dtype=torch.float64)
    out = one_process(qkv, [0, n], causal)
    out.backward(dout)

    def body(ctx):
        own = rows_of(qkv.detach(), layout, ranks, ctx.rank)[None].clone().requires_grad_()
        packed = getattr(rf, f"{family}_flash_attn_qkvpacked_func")
        o, lse, nothing = packed(own, causal=causal, return_attn_probs=True)
        assert nothing is None and lse.shape == (1, 2, n // ranks)
        o.backward(rows_of(dout, layout, ranks, ctx.rank)[None])
        with torch.no_grad():
            q, k, v = own.unbind(2)
            assert (getattr(rf, f"{family}_flash_attn_func")(q, k, v, causal=causal) == o).all()
            kv = torch.stack([k, v], 2)
            assert (getattr(rf, f"{family}_flash_attn_kvpacked_func")(q, kv, causal=causal) == o).all()
        return o[0].detach(), own.grad[0]

    for rank, (o, grad) in enumerate(rt.run_ranks(ranks, body)):
        assert reference.furthest(o, rows_of(out.detach(), layout, ranks, rank)) < 1e-12
        assert reference.furthest(grad, rows_of(qkv.grad, layout, ranks, rank)) < 1e-12


@pytest.mark.parametrize("family", LAYOUTS)
@pytest.mark.parametrize("cu", [[0, 8, 28, 40], [0, 6, 28, 28, 40]])  # runs of zigzag that are equal, and that are not
def test_documents_cut_over_all_ranks(family, cu):
    torch.manual_seed(1)
    layout, ranks = LAYOUTS[family], 2
    qkv = torch.randn(40, 3, 2, 8, dtype=torch.float64, requires_grad=True)
    dout = torch.randn(40, 2, 8, dtype=torch.float64)
    out = one_process(qkv, cu, True)
    out.backward(dout)
    cut = lambda x, rank: torch.cat([rows_of(x[a:b], layout, ranks, rank) for a, b in zip(cu, cu[1:])])

    def body(ctx):
        own = cut(qkv.detach(), ctx.rank).clone().requires_grad_()
        local = torch.tensor(cu, dtype=torch.int32) // ranks
        o, lse, _ = getattr(rf, f"{family}_flash_attn_varlen_qkvpacked_func")(own, local, 10, causal=True,
                                                                              return_attn_probs=True)
        assert lse.shape == (2, 20)
        o.backward(cut(dout, ctx.rank))
        return o.detach(), own.grad

    for rank, (o, grad) in enumerate(rt.run_ranks(ranks, body)):
        assert reference.furthest(o, cut(out.detach(), rank)) < 1e-12
        assert reference.furthest(grad, cut(qkv.grad, rank)) < 1e-12


@pytest.mark.parametrize("causal", [True, False])
def test_llama3(causal):
    torch.manual_seed(2)
    ranks, cu = 4, [0, 5, 22, 40]
    qkv = torch.randn(40, 3, 2, 8, dtype=torch.float64, requires_grad=True)
    dout = torch.randn(40, 2, 8, dtype=torch.float64)
    out = one_process(qkv, cu, causal)
    out.backward(dout)

    def body(ctx):
        mine = slice(10 * ctx.rank, 10 * ctx.rank + 10)
        own = qkv.detach()[mine].clone().requires_grad_()
        prepared = rf.llama3_flash_attn_prepare_cu_seqlens(torch.tensor(cu, dtype=torch.int32), causal, ctx.rank, ranks)
        o = rf.llama3_flash_attn_varlen_qkvpacked_func(own, *prepared[:4], heads_k_stride=1, local_k_slice=prepared[4],
                                                       causal=causal)
        o.backward(dout[mine])
        return o.detach(), own.grad

    for rank, (o, grad) in enumerate(rt.run_ranks(ranks, body)):
        mine = slice(10 * rank, 10 * rank + 10)
        assert reference.furthest(o, out.detach()[mine]) < 1e-12
        assert reference.furthest(grad, qkv.grad[mine]) < 1e-12


def test_llama3_prepare():
    """By hand: 16 tokens in documents of 3, 9 and 4, over 4 ranks; rank 1 has queries 4 to 7 of the second."""
    cu = torch.tensor([0, 3, 12, 16], dtype=torch.int32)
    q, k, max_q, max_k, keys = rf.llama3_flash_attn_prepare_cu_seqlens(cu, True, 1, 4)
    assert (q.tolist(), k.tolist(), max_q, max_k, keys) == ([0, 4], [0, 5], 4, 5, slice(3, 8))
    q, k, max_q, max_k, keys = rf.llama3_flash_attn_prepare_cu_seqlens(cu, False, 0, 4)
    assert (q.tolist(), k.tolist(), max_q, max_k, keys) == ([0, 3, 4], [0, 3, 12], 3, 9, slice(0, 12))
    assert q.dtype == torch.int32
    with pytest.raises(ringattn.ArgumentError, match="do not divide"):
        rf.llama3_flash_attn_prepare_cu_seqlens(cu, True, 0, 3)


@pytest.fixture
def numbers_in_graphs():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        yield


def test_compiled(numbers_in_graphs):
    """The functions whose calls depend on the numbers in cu_seqlens give the same inside torch.compile."""
    compiled = lambda f: torch.compile(f, backend="eager")
    cu = torch.tensor([0, 6, 16], dtype=torch.int32)
    qkv = torch.randn(16, 3, 2, 8, dtype=torch.float64)
    want = rf.llama3_flash_attn_prepare_cu_seqlens(cu, True, 0, 1)
    got = compiled(rf.llama3_flash_attn_prepare_cu_seqlens)(cu, True, 0, 1)
    assert want[0].equal(got[0]) and want[1].equal(got[1]) and want[2:] == got[2:]
    ctx = rt.init()
    try:
        how = dict(heads_k_stride=1, local_k_slice=got[4], causal=True)
        f = rf.llama3_flash_attn_varlen_qkvpacked_func
        assert (compiled(f)(qkv, *got[:4], **how) == f(qkv, *got[:4], **how)).all()
        f = rf.zigzag_ring_flash_attn_varlen_qkvpacked_func
        assert (compiled(f)(qkv, cu, 10, causal=True) == f(qkv, cu, 10, causal=True)).all()
    finally:
        ctx.close()


def test_signatures():
    fixed = ["dropout_p", "softmax_scale", "causal", "window_size", "alibi_slopes", "deterministic",
             "return_attn_probs",
             "group"]
    names = lambda f: list(inspect.signature(f).parameters)
    for family in LAYOUTS:
        assert names(getattr(rf, f"{family}_flash_attn_func")) == ["q", "k", "v", *fixed]
        assert names(getattr(rf, f"{family}_flash_attn_varlen_kvpacked_func")) == ["q", "kv", "cu_seqlens",
                                                                                   "max_seqlen",
                                                                                   *fixed]
    assert names(rf.llama3_flash_attn_varlen_func) == [
        "q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "heads_k_stride",
        "local_k_slice",
        *fixed]
    assert rf.zigzag_ring_flash_attn_func.__name__ == "zigzag_ring_flash_attn_func"


def test_refusals():
    x = torch.randn(1, 8, 2, 8)
    ctx = rt.init()
    try:
        with pytest.raises(ringattn.UnsupportedError, match="dropout"):
            rf.ring_flash_attn_func(x, x, x, dropout_p=0.1)
        with pytest.raises(ringattn.UnsupportedError, match="alibi"):
            rf.zigzag_ring_flash_attn_func(x, x, x, alibi_slopes=torch.ones(2))
        with pytest.raises(ringattn.ArgumentError, match="prepare"):
            cu = torch.tensor([0, 3, 8])
            rf.llama3_flash_attn_varlen_func(x[0], x[0], x[0], cu, cu, 5, 5, 1, slice(0, 7))
    finally:
        ctx.close()


def test_dilated_modules():
    """Heads dealt to two branches, of offsets 0 and 1; each branch its own softmax over what it keeps, halved."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 16, 4, 8, dtype=torch.float64) for _ in range(3))
    want = torch.zeros_like(q)
    for heads, segment, rate, offset in ((slice(0, 2), 4, 1, 0), (slice(2, 4), 16, 2, 1)):
        for start in range(0, 16, segment):
            kept = slice(start + offset, start + segment, rate)
            own = [x[:, kept, heads].transpose(1, 2) for x in (q, k, v)]
            want[:, kept, heads] = sdpa(*own, is_causal=True).transpose(1, 2) / 2
    module = dilated.DilatedAttention(segment_lengths=[4, 16], dilation_rates=[1, 2])

    def body(ctx):
        shards = [rt.shard(x, 1, ctx) for x in (q, k, v)]
        return rt.unshard(module(*shards, is_causal=True, seq_len=16), 1, ctx)

    for ranks in (1, 3):
        for got in rt.run_ranks(ranks, body):
            assert reference.furthest(got, want) < 1e-12
    names = list(inspect.signature(dilated.MultiheadDilatedAttention).parameters)
    assert names[:4] == ["embed_dim", "num_heads", "dilation_rates", "segment_lengths"]


def four(n=22, heads=2):
    torch.manual_seed(4)
    x = [torch.randn(1, n, heads, 8, dtype=torch.float64) for _ in range(3)]
    return x, sdpa(*(y.transpose(1, 2) for y in x), is_causal=True).transpose(1, 2)


def test_yunchang():
    from ringattn.compat.yunchang import LongContextAttention, set_seq_parallel_pg

    inputs, want = four()
    for kind, layout in (("basic", "contiguous"), ("zigzag", "zigzag"), ("strip", "striped")):
        module = LongContextAttention(ring_impl_type=kind)
        cut = lambda x, rank: rows_of(x, layout, 2, rank, 1)
        # Rings of that package have the same number of rows on every rank.
        got = rt.run_ranks(2, lambda ctx: module(*(cut(x, ctx.rank) for x in inputs), causal=True))
        for rank, own in enumerate(got):
            assert reference.furthest(own, cut(want, rank)) < 1e-12
    set_seq_parallel_pg(1, 4, 0, 4)
    with pytest.raises(ringattn.UnsupportedError, match="splits no heads"):
        set_seq_parallel_pg(2, 2, 0, 4)
    with pytest.raises(ringattn.UnsupportedError, match="softcap"):
        module(*inputs, softcap=30.0)
    with pytest.raises(ringattn.UnsupportedError, match="attn_processor"):
        LongContextAttention(attn_processor=object())


def test_deepspeed():
    """[rows, B, H, D] and [B, rows, H, D], uneven runs, an odd number of heads."""
    from ringattn.compat.deepspeed import DistributedAttention

    inputs, want = four(n=23, heads=3)
    settings = rt.RingAttention(causal=True)

    def body(ctx):
        cut = lambda x: rows_of(x, "contiguous", 2, ctx.rank, 1)
        rows_first = DistributedAttention(settings, ctx)
        batch_first = DistributedAttention(settings, ctx, scatter_idx=2, gather_idx=1)
        a = rows_first(*(cut(x).transpose(0, 1) for x in inputs), 1).transpose(0, 1)
        b = batch_first(*(cut(x) for x in inputs), 0)
        assert (a == b).all()
        return a, cut(want)

    for got, expected in rt.run_ranks(2, body):
        assert reference.furthest(got, expected) < 1e-12
    with pytest.raises(ringattn.UnsupportedError, match="whether it is causal"):
        DistributedAttention(torch.nn.Linear(1, 1), None)


def test_deepspeed_takes_every_setting():
    """What a module of flash_attn's, or RingAttention, was told is computed, or refused."""
    from types import SimpleNamespace

    from ringattn.compat.deepspeed import DistributedAttention

    inputs, _ = four()
    ctx = rt.init()
    try:
        flash = SimpleNamespace(causal=True, softmax_scale=0.7, window_size=(3, 0))
        for local, how in ((flash, dict(causal=True, scale=0.7, window=(3, 0))),
                           (rt.RingAttention(dilated=[(8, 2)]), dict(dilated=[(8, 2)]))):
            got = DistributedAttention(local, ctx, gather_idx=1)(*inputs, 0)
            assert reference.furthest(got, rt.attention(*inputs, ctx=ctx, **how)) < 1e-12
    finally:
        ctx.close()
    for name in ("alibi_slopes", "softcap"):
        with pytest.raises(ringattn.UnsupportedError, match=name):
            DistributedAttention(SimpleNamespace(causal=True, **{name: 1.0}), None)


def test_signatures_of_context_parallel():
    theirs = pytest.importorskip("torch.distributed.tensor.experimental._attention")
    from ringattn.compat import context_parallel as ours

    for name in ("context_parallel", "context_parallel_unshard"):
        kinds = [[(p.name, p.kind) for p in inspect.signature(getattr(module, name)).parameters.values()]
                 for module in (theirs, ours)]
        assert kinds[0] == kinds[1], name


def test_context_parallel():
    """Buffers are cut inside and whole again after; a model's own calls of SDPA are those of the whole sequence."""
    from ringattn.compat.context_parallel import context_parallel, context_parallel_unshard

    inputs, want = four()
    ctx = rt.init()
    before = torch.nn.functional.scaled_dot_product_attention
    try:
        buffers = [x.clone() for x in inputs]
        with context_parallel(ctx, buffers=buffers, buffer_seq_dims=[1] * 3, no_restore_buffers={buffers[2]}):
            call = torch.nn.functional.scaled_dot_product_attention
            o = call(*(x.transpose(1, 2) for x in buffers), is_causal=True).transpose(1, 2)
            with pytest.raises(ringattn.UnsupportedError, match="attn_mask"):
                call(*(x.transpose(1, 2) for x in buffers), attn_mask=torch.ones(22, 22, dtype=torch.bool))
        assert reference.furthest(context_parallel_unshard(ctx, [o], [1])[0], want) < 1e-12
        assert (buffers[0] == inputs[0]).all()
        assert torch.nn.functional.scaled_dot_product_attention is before
        with pytest.raises(ringattn.UnsupportedError, match="load_balancer"):
            context_parallel_unshard(ctx, [o], [1], object())
        with pytest.raises(ringattn.ArgumentError, match="lengths"):
            with context_parallel(ctx, buffers=[inputs[0], want[:, :3]], buffer_seq_dims=[1, 1]):
                pass
    finally:
        ctx.close()
