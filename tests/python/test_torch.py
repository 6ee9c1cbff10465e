"""ringattn.torch against scaled_dot_product_attention, with ranks that are threads: random problems, graphs,
gradients."""
import contextlib
import os

import numpy as np
import pytest
import reference

torch = pytest.importorskip("torch", reason="torch is not installed")
import ringattn  # noqa: E402
import ringattn.torch as rt  # noqa: E402
from ringattn import _library  # noqa: E402
from ringattn.torch import graphs, ops, straight  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

SWEEP = int(os.environ.get("RINGATTN_SWEEP", "24"))
TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-6}


@pytest.fixture
def ctx():
    made = rt.init()
    yield made
    made.close()


def whole(q, k, v, dout, sizes, pattern):
    """o and the gradients by SDPA, with a mask; rows that see nothing are zero and have no gradient."""
    pattern = dict(pattern)
    scale = pattern.pop("scale", None)
    seen = torch.from_numpy(reference.visible(sizes["seq_q"], sizes["seq_k"], sizes["heads_q"], **pattern).sum(0))
    inputs = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    group = sizes["heads_q"] // sizes["heads_kv"]
    heads = [x.transpose(1, 2) for x in inputs]
    heads[1:] = [x.repeat_interleave(group, 1) for x in heads[1:]]
    some = seen.any(-1)
    bias = seen.log().to(q.dtype)  # a key in two branches counts twice
    bias[~some] = 0
    o = sdpa(*heads, attn_mask=bias[None], scale=scale).transpose(1, 2) * some.t()[None, :, :, None]
    o.backward(dout)
    return [o.detach()] + [x.grad for x in inputs]


@pytest.mark.parametrize("seed", range(SWEEP))
def test_random_problems(seed):
    rng = np.random.default_rng(1000 + seed)
    sizes, pattern = reference.random_problem(rng, most=50)
    dtype = torch.float64 if rng.random() < 0.5 else torch.float32
    q, k, v, dout = (torch.from_numpy(x).to(dtype) for x in reference.arrays(rng, sizes, "float64"))
    expected = whole(q, k, v, dout, sizes, pattern)

    def body(ctx):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        shards = [rt.shard(x, 1, ctx) for x in inputs]
        o = rt.attention(*shards, seq_len=sizes["seq_q"], seq_len_k=sizes["seq_k"], ctx=ctx, **pattern)
        o = rt.unshard(o, 1, ctx)
        o.backward(dout)
        return [o.detach()] + [x.grad for x in inputs]

    layout = str(rng.choice(["auto", "contiguous", "striped"]))
    for results in rt.run_ranks(int(rng.integers(1, 5)), body, layout=layout):
        for name, got, want in zip(("o", "dq", "dk", "dv"), results, expected):
            assert reference.furthest(got, want) < TOLERANCE[dtype], (name, sizes, pattern)


def test_layout_of_documents():
    """Rows are cut by the context's documents, and attention over others, which would be wrong, is refused."""
    cu = [0, 5, 9, 19]
    q, k, v = tensors()
    want = ringattn.attention(q.detach(), k.detach(), v.detach(), causal=True, cu_seqlens=cu, ranks=1)

    def body(ctx, known, given, given_k=None):
        ctx.cu_seqlens = None if known is None else torch.tensor(known)
        shards = [rt.shard(x.detach(), 1, ctx) for x in (q, k, v)]
        o = rt.attention(*shards, seq_len=19, causal=True, cu_seqlens=given, cu_seqlens_k=given_k, ctx=ctx)
        return rt.unshard(o, 1, ctx)

    for given in (cu, [0, 5, 5, 9, 19]):
        for got in rt.run_ranks(3, lambda ctx: body(ctx, cu, given), layout="documents"):
            assert reference.furthest(got, want) < 1e-12
    others = [0, 6, 9, 19]
    for known, given, given_k in ((None, cu, None), (cu, None, None), (cu, others, None), (cu, cu, others)):
        with pytest.raises(ringattn.ArgumentError, match="are cut by"):
            rt.run_ranks(3, lambda ctx: body(ctx, known, given, given_k), layout="documents")


def tensors(dtype=torch.float64, n=19, **how):
    torch.manual_seed(5)
    return [torch.randn(1, n, 2, 8, dtype=dtype, **how) for _ in range(3)]


def arguments(ctx, q, k, v, cu=None, dilated=None):
    n = q.shape[1]
    return (q, k, v, cu, None, ctx.number, True, n, n, ops.describe(True, (-1, -1), 0.3, ringattn.Dilated.of(dilated)))


@pytest.mark.parametrize("case", [dict(), dict(cu=torch.tensor([0, 5, 19])), dict(dilated=((8, 2), (16, 4)))])
def test_opcheck(ctx, case):
    torch.library.opcheck(ops.attention_op, arguments(ctx, *tensors(requires_grad=True), **case))


def test_opcheck_shards(ctx):
    torch.library.opcheck(ops.shard_op, (torch.randn(2, 7, 3, requires_grad=True), 1, ctx.number),
                          test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))
    torch.library.opcheck(ops.unshard_op, (torch.randn(2, 7, 3, requires_grad=True), 1, ctx.number, 7),
                          test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))


def test_gradcheck(ctx):
    inputs = tensors(n=7, requires_grad=True)
    for how in (dict(causal=True), dict(window=(2, 1)), dict(dilated=[(4, 2), (7, 1)]), dict(cu_seqlens=[0, 3, 7])):
        assert torch.autograd.gradcheck(lambda *x: rt.attention(*x, ctx=ctx, **how), inputs)


def test_compiled_without_breaks_equals_eager(ctx):
    def f(q, k, v, cu):
        return (rt.attention(q, k, v, causal=True, cu_seqlens=cu, ctx=ctx) * 2).sin()

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for cu in (torch.tensor([0, 5, 19]), torch.tensor([0, 9, 19])):
        a, b = (tensors(requires_grad=True) for _ in range(2))
        one, two = f(*a, cu), compiled(*b, cu)
        one.sum().backward()
        two.sum().backward()
        assert (one == two).all()
        for x, y in zip(a, b):
            assert (x.grad == y.grad).all()


@pytest.mark.parametrize("fullgraph", [True, False])
def test_compiled_autograd(ctx, fullgraph):
    """The backward pass of a call that went past the dispatcher, traced by torch's compiler."""
    compiled_autograd = pytest.importorskip("torch._dynamo.compiled_autograd")
    enable = getattr(compiled_autograd, "_enable", None) or compiled_autograd.enable
    gradients = []
    for under in (contextlib.nullcontext(), enable(torch.compile(backend="eager", fullgraph=fullgraph))):
        inputs = tensors(requires_grad=True)
        with under:
            rt.attention(*inputs, causal=True, ctx=ctx).sin().sum().backward()
        gradients.append([x.grad for x in inputs])
    assert all((x == y).all() for x, y in zip(*gradients))


def test_functions_outside_graphs_are_disabled_once(monkeypatch):
    """To disable one takes longer than to call it."""
    import torch._dynamo

    made = []
    disable = torch.compiler.disable
    monkeypatch.setattr(torch.compiler, "disable", lambda function: (made.append(function), disable(function))[1])
    function = graphs.outside_graphs(lambda x: x + (2 if torch.compiler.is_compiling() else 1))
    x = torch.zeros(3)
    for _ in range(3):
        assert (function(x) == 1).all()
    assert len(made) == 1
    compiled = torch.compile(lambda x: function(x * 2) * 3, backend="eager")
    for _ in range(3):
        assert (compiled(x) == 3).all()
    assert len(made) == 1


def test_compiled_for_any_length(ctx):
    """One graph serves all lengths."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    f = torch.compile(lambda q, k, v: rt.unshard(rt.attention(q, k, v, seq_len=q.shape[1], causal=True, ctx=ctx) * 2, 1,
                                                 ctx, seq_len=q.shape[1]),
                      fullgraph=True, dynamic=True, backend=backend)
    for n in (19, 23, 40):
        q, k, v = tensors(n=n)
        assert (f(q, k, v) == rt.attention(q, k, v, causal=True, ctx=ctx) * 2).all()
    assert len(graphs) == 1


def test_gradient_of_a_sum(ctx):
    """Its strides are all zero."""
    q, k, v = tensors(requires_grad=True)
    rt.attention(q, k, v, causal=True, ctx=ctx).sum().backward()
    expected = reference.attention(*(x.detach().numpy() for x in (q, k, v)), np.ones(q.shape), causal=True)[2:]
    for x, want in zip((q, k, v), expected):
        assert reference.furthest(x.grad, want) < 1e-12


def test_other_strides(ctx):
    """[B, H, S, D] seen as [B, S, H, D], and a slice of a packed qkv."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors())
    packed = torch.stack([q, k, v], dim=2)
    want = rt.attention(q.contiguous(), k.contiguous(), v.contiguous(), ctx=ctx)
    assert (rt.attention(q, k, v, ctx=ctx) == want).all()
    assert (rt.attention(*packed.unbind(2), ctx=ctx) == want).all()


def test_autocast(ctx):
    q, k, v = tensors(torch.float32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        o = rt.attention(q, k, v, ctx=ctx)
    assert o.dtype == torch.bfloat16
    o.sum().backward()
    assert q.grad.dtype == torch.float32
    with torch.no_grad():
        assert reference.furthest(o.float(), rt.attention(q, k, v, ctx=ctx)) < 3e-2


class _Seen(torch.utils._python_dispatch.TorchDispatchMode):
    """The names of the operators that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_modes_and_profilers_see_the_operators(ctx):
    """A call goes past torch's dispatcher only where nobody would notice; its results are the same."""
    from torch.profiler import ProfilerActivity, profile

    dout = torch.randn(1, 19, 2, 8, dtype=torch.float64)

    def step():
        inputs = tensors(requires_grad=True)
        o = rt.attention(*inputs, causal=True, ctx=ctx)
        o.backward(dout)
        return [o.detach()] + [x.grad for x in inputs]

    want = step()
    with _Seen() as seen:
        under_mode = step()
    for name in ("attention", "attention_backward"):
        assert seen.names.count(f"ringattn.{name}.default") == 1
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        under_profiler = step()
    events = {event.key for event in profiled.key_averages()}
    assert {"ringattn::attention", "ringattn::attention_backward"} <= events
    for results in (under_mode, under_profiler):
        assert all((x == y).all() for x, y in zip(results, want))


def test_no_kernel_for_the_gradient_of_lse(ctx):
    """Nothing is launched beside the passes: no zeros for lse's gradient, no copies of the inputs' gradients."""
    inputs = tensors(requires_grad=True)
    dout = torch.randn(1, 19, 2, 8, dtype=torch.float64)
    o = rt.attention(*inputs, causal=True, ctx=ctx)
    with _Seen() as seen:
        o.backward(dout)
    made = {"aten.new_empty_strided.default", "aten.detach.default", "ringattn.attention_backward.default"}
    assert set(seen.names) <= made, seen.names


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_what_stands_between_is_heeded(ctx):
    """A tensor that is negated when it is read, a trace, a tangent, a second derivative: right, or refused."""
    assert straight.straight(*tensors(), torch.nn.Parameter(tensors()[0]))
    q, k, v = tensors()
    negated = torch.randn(1, 19, 2, 8, dtype=torch.complex128).conj().imag
    assert negated.is_neg()
    assert (rt.attention(negated, k, v, ctx=ctx) == rt.attention(negated.resolve_neg(), k, v, ctx=ctx)).all()
    with pytest.raises(ringattn.ArgumentError, match="resolve_neg"):
        ringattn.attention(negated, k, v)
    gradients = []
    for key in (negated, negated.resolve_neg()):
        leaf = q.clone().requires_grad_()
        rt.attention(leaf, key, v, causal=True, ctx=ctx).backward(k)
        gradients.append(leaf.grad)
    assert (gradients[0] == gradients[1]).all()
    traced = torch.jit.trace(lambda *x: rt.attention(*x, causal=True, ctx=ctx), (q, k, v))
    assert (traced(k, v, q) == rt.attention(k, v, q, causal=True, ctx=ctx)).all()
    with torch.autograd.forward_ad.dual_level(), pytest.raises(ringattn.UnsupportedError, match="forward-mode"):
        rt.attention(torch.autograd.forward_ad.make_dual(q, k), k, v, ctx=ctx)
    inputs = tensors(requires_grad=True)
    dq, = torch.autograd.grad(rt.attention(*inputs, ctx=ctx).sum(), inputs[:1], create_graph=True)
    with pytest.raises(ringattn.UnsupportedError, match="no gradient of its own"):
        torch.autograd.grad(dq.sum(), inputs[1], allow_unused=True)


def test_outputs_are_tensors_of_their_mode(ctx):
    """They are not allocated by torch.empty: dense all the same, and of inference mode where that is on."""
    transposed = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors()]
    for inputs in (tensors(), transposed):
        o = rt.attention(*inputs, ctx=ctx)
        assert o.is_contiguous() and o.dtype == torch.float64 and not o.is_inference() and not o.requires_grad
        with torch.inference_mode():
            assert rt.attention(*inputs, ctx=ctx).is_inference()


def test_zeros_without_memory(ctx):
    """torch's own backward passes give such tensors."""
    q, k, v = tensors()
    zero = torch._efficientzerotensor(q.shape, dtype=q.dtype)
    assert zero.data_ptr() == 0 and not straight.straight(q, zero)
    assert (rt.attention(zero, k, v, causal=True, ctx=ctx)
            == rt.attention(torch.zeros_like(q), k, v, causal=True, ctx=ctx)).all()
    inputs = tensors(requires_grad=True)
    rt.attention(*inputs, causal=True, ctx=ctx).backward(zero)
    assert all((x.grad == 0).all() for x in inputs)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transforms(ctx):
    """torch.func.vmap is right, by rt.attention and by the operator; torch.func.grad is refused."""
    q, k, v = tensors()
    several, what = torch.stack([q, 2 * q]), ops.describe(True, (-1, -1), None, None)
    want = torch.stack([rt.attention(x, k, v, causal=True, ctx=ctx) for x in several])
    for call in (lambda x: rt.attention(x, k, v, causal=True, ctx=ctx),
                 lambda x: ops.attention_op(x, k, v, None, None, ctx.number, False, 19, 19, what)[0]):
        assert (torch.func.vmap(call)(several) == want).all()
    call = lambda x: rt.attention(x, k, v, causal=True, ctx=ctx).sum()
    for transformed in (torch.func.grad(call), torch.func.jacrev(call), lambda x: torch.func.jvp(call, (x,), (x,)),
                        lambda x: torch.func.vmap(torch.func.grad(call))(x[None])):
        with pytest.raises(ringattn.UnsupportedError, match="torch.func.grad.* do not go through attention"):
            transformed(q)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_batched_gradients(ctx):
    """is_grads_batched=True gives the backward pass tensors of no subclass, and no transform says that it is on."""
    inputs = tensors(requires_grad=True)
    o = rt.attention(*inputs, causal=True, ctx=ctx)
    douts = torch.randn(3, *o.shape, dtype=o.dtype)
    got = torch.autograd.grad(o, inputs, douts, is_grads_batched=True, retain_graph=True)
    for i, dout in enumerate(douts):
        want = torch.autograd.grad(o, inputs, dout, retain_graph=True)
        assert all((x[i] == y).all() for x, y in zip(got, want))


def test_keys_of_ordinary_tensors():
    """Those of a GPU's count as plain where there is none to try; what needs the dispatcher does not."""
    keys = torch._C.DispatchKey
    plain = [keys.CPU, keys.CUDA, keys.AutogradCPU, keys.AutogradCUDA, keys.ADInplaceOrView, keys.AutocastCUDA]
    others = [keys.Meta, keys.SparseCPU, keys.SparseCsrCUDA, keys.QuantizedCPU, keys.NestedTensorCUDA, keys.Negative,
              keys.Conjugate, keys.ZeroTensor, keys.Python, keys.Functionalize, keys.FuncTorchBatched]
    assert straight._known
    for key in plain + others:
        assert bool(torch._C.DispatchKeySet(key).raw_repr() & straight._others) == (key in others), key


def test_lse_has_no_gradient(ctx):
    q, k, v = tensors(requires_grad=True)
    o, lse = rt.attention(q, k, v, causal=True, return_lse=True, ctx=ctx)
    assert o.requires_grad and not lse.requires_grad
    assert reference.furthest(lse, reference.attention(*(x.detach().numpy()
                              for x in (q, k, v)), causal=True)[1]) < 1e-12


def test_plans_are_kept_and_evicted(ctx, monkeypatch):
    made = []
    real = rt.context.Plan
    monkeypatch.setattr(rt.context, "Plan", lambda *a, **k: made.append(1) or real(*a, **k))
    monkeypatch.setattr(rt.context, "PLANS_KEPT", 2)
    for n in (5, 5, 6, 5, 7, 6):
        rt.attention(*tensors(n=n), ctx=ctx)
    assert len(made) == 4  # 5, 6, 7, and 6 again, which 7 had pushed out


def test_checkpointing_runs_attention_once(ctx, monkeypatch):
    from torch.utils.checkpoint import checkpoint

    monkeypatch.setattr(_library.core(), "ra_plan_forward", _library.core().ra_plan_forward)  # put back at the end
    runs = reference.count_calls("ra_plan_forward")
    f = lambda *x: rt.attention(*(y.sin() for y in x), causal=True, ctx=ctx).cos().sum()
    a, b = (tensors(requires_grad=True) for _ in range(2))
    checkpoint(f, *a, use_reentrant=False, context_fn=rt.save_attention).backward()
    assert len(runs) == 1
    f(*b).backward()
    for x, y in zip(a, b):
        assert (x.grad == y.grad).all()
    checkpoint(f, *a, use_reentrant=False).backward()
    assert len(runs) == 4  # without it: once for b, and twice here


def test_front_door_takes_tensors():
    q, k, v = tensors()
    got = ringattn.attention(q, k, v, causal=True, ranks=3)
    want = sdpa(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)
    assert isinstance(got, torch.Tensor) and reference.furthest(got, want) < 1e-12
    half = [x.to(torch.bfloat16) for x in (q, k, v)]
    got = ringattn.attention(*half, causal=True, ranks=3)
    assert got.dtype == torch.bfloat16 and reference.furthest(got.float(), want) < 4e-2
    with pytest.raises(ringattn.ArgumentError, match="ringattn.torch.attention"):
        ringattn.attention(q.requires_grad_(), k, v)


def test_refusals(ctx):
    q, k, v = tensors()
    with pytest.raises(ringattn.ArgumentError, match="rows, heads, dim"):
        rt.attention(q[0], k[0], v[0], ctx=ctx)
    with pytest.raises(ringattn.ArgumentError, match="cut|sequence"):
        rt.run_ranks(2, lambda ctx: rt.attention(q, k, v, ctx=ctx))
    with pytest.raises(ringattn.ArgumentError, match="q has shape .* the length of the whole sequence"):
        rt.run_ranks(2, lambda ctx: rt.attention(q, k, v, seq_len=19, ctx=ctx))
    with pytest.raises(ringattn.ArgumentError, match="q is a ndarray"):
        rt.attention(q.numpy(), k, v, ctx=ctx)
    with pytest.raises(ringattn.ArgumentError, match="k is a tensor of layout torch.sparse"):
        rt.attention(q, k.to_sparse(), v, ctx=ctx)
    rows = torch.nested.nested_tensor([q[0, :7], q[0, 7:]], layout=torch.jagged)
    with pytest.raises(ringattn.ArgumentError, match="q is a nested tensor"):
        rt.attention(rows, rows, rows, ctx=ctx)
    packed = rows.values()[None]
    assert (rt.attention(packed, packed, packed, cu_seqlens=rows.offsets(), ctx=ctx)
            == rt.attention(q, q, q, cu_seqlens=[0, 7, 19], ctx=ctx)).all()
    with pytest.raises(ringattn.ArgumentError, match="which is no zigzag"):
        rt.run_ranks(2, lambda ctx: rt.unshard(q[:, :1 + 4 * ctx.rank], 1, ctx))
    ctx.close()
    with pytest.raises(ringattn.ArgumentError, match="call ringattn.torch.init"):
        rt.attention(q, k, v)


def test_modules(ctx):
    torch.manual_seed(0)
    module = rt.MultiheadDilatedAttention(24, 4, [1, 2], [8, 16], dtype=torch.float64, ctx=ctx)
    x = torch.randn(1, 21, 24, dtype=torch.float64)
    want, nothing = module(x, x, x, is_causal=True)
    assert nothing is None and want.shape == x.shape

    def body(ctx):
        module.attention.ctx = None  # the thread's own
        own = rt.shard(x, 1, ctx)
        return rt.unshard(module(own, own, own, is_causal=True, seq_len=21)[0], 1, ctx)

    for got in rt.run_ranks(3, body):
        assert reference.furthest(got.detach(), want.detach()) < 1e-12
    assert "window=(4, -1)" in repr(rt.RingAttention(window=[4, -1])) and "groups" in repr(module)
    plain = rt.RingAttention(causal=True, window=(4, -1), ctx=ctx)(*tensors())
    assert (plain == rt.attention(*tensors(), causal=True, window=(4, -1), ctx=ctx)).all()
    with pytest.raises(ringattn.ArgumentError, match="dropout"):
        rt.DilatedAttention([8], [1], attention_dropout=0.1)


def test_a_scale_that_changes_is_seen(ctx):
    """A scale may be a tensor, whose value counts, not which one it is."""
    q, k, v = (torch.randn(1, 24, 2, 8, dtype=torch.float64) for _ in range(3))
    scale = torch.tensor(0.5)
    once = rt.attention(q, k, v, scale=scale, ctx=ctx)
    scale.mul_(2)
    again = rt.attention(q, k, v, scale=scale, ctx=ctx)
    assert torch.equal(once, rt.attention(q, k, v, scale=0.5, ctx=ctx))
    assert torch.equal(again, rt.attention(q, k, v, scale=1.0, ctx=ctx)) and not torch.equal(once, again)


def test_branches_in_a_list(ctx):
    q, k, v = (torch.randn(1, 24, 2, 8, dtype=torch.float64) for _ in range(3))
    wanted = rt.attention(q, k, v, dilated="8:1,24:2", ctx=ctx)
    assert torch.equal(rt.attention(q, k, v, dilated=ringattn.Dilated([(8, 1), (24, 2)]), ctx=ctx), wanted)
