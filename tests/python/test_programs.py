"""What programs do around attention: threads, forks, copies and pickles of modules, lengths that change."""
import copy
import os
import pickle
import threading
import tracemalloc

import pytest
import reference

torch = pytest.importorskip("torch", reason="torch is not installed")
import ringattn  # noqa: E402
import ringattn.torch as rt  # noqa: E402
from ringattn.torch import positions  # noqa: E402


@pytest.fixture
def ctx():
    made = rt.init()
    yield made
    made.close()


def on_threads(count, body):
    """body(i) on a thread each; what they gave."""
    results = [None] * count

    def run(i):
        results[i] = body(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_share_a_context_of_one_rank(ctx):
    """As those of a server do: calls wait for one another."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 300, 4, 32) for _ in range(4)]
    want = [rt.attention(x, x, x, causal=True, ctx=ctx) for x in inputs]

    def body(i):
        x = inputs[i]
        return sum(not torch.equal(rt.attention(x, x, x, causal=True, ctx=ctx), want[i]) for _ in range(50))

    assert on_threads(4, body) == [0] * 4


def test_threads_that_share_a_context_of_several_ranks_are_refused():
    """The order of their calls would be another on every rank."""

    def body(ctx):
        x = rt.shard(torch.randn(1, 20, 2, 8), 1, ctx)
        assert ctx.with_layout("striped").turn is ctx.turn
        with ctx.turn:  # as while another thread's call runs
            with pytest.raises(ringattn.ArgumentError, match="another thread is inside a call"):
                rt.attention(x, x, x, seq_len=20, ctx=ctx)
        return rt.attention(x, x, x, seq_len=20, ctx=ctx).shape[1]

    assert rt.run_ranks(2, body) == [10, 10]


def test_gradients_of_a_batch_after_the_next_was_cut():
    """In layout "documents" shard's and unshard's gradients go by the documents of their own batch."""
    torch.manual_seed(0)
    documents = [torch.tensor([0, 5, 9, 20]), torch.tensor([0, 11, 20])]
    wholes = [torch.randn(1, 20, 2, 4, dtype=torch.float64) for _ in documents]
    weights = torch.arange(20, dtype=torch.float64).view(1, 20, 1, 1)

    def body(ctx):
        leaves, losses = [x.clone().requires_grad_() for x in wholes], []
        for leaf, cu in zip(leaves, documents):
            ctx.cu_seqlens = cu
            own = rt.shard(leaf, 1, ctx)
            losses.append((rt.unshard(own * own, 1, ctx) * weights).sum())
        for loss in losses:
            loss.backward()
        return [leaf.grad for leaf in leaves]

    for gradients in rt.run_ranks(3, body, layout="documents"):
        for got, x in zip(gradients, wholes):
            assert reference.furthest(got, 2 * x * weights) < 1e-12


@pytest.mark.parametrize("how, words", [
    (dict(window=4), "window is 4; it must be"), (dict(window=None), "window is None"),
    (dict(window=(4, 0, 1)), "window is"), (dict(window=(4.5, 0)), "window is"), (dict(window=(None, 0)), "window is"),
    (dict(cu_seqlens=9), "cu_seqlens is 9"), (dict(cu_seqlens=[]), "documents start"),
    (dict(cu_seqlens=[0, 4.5, 9]), "documents start"), (dict(cu_seqlens=torch.tensor([[0, 4, 9]])), "documents start"),
    (dict(cu_seqlens=torch.tensor([0.0, 4.5, 9.0])), "documents start"),
])
def test_arguments_that_are_no_windows_and_no_documents(ctx, how, words):
    x = torch.randn(1, 9, 2, 8)
    for call in (lambda: rt.attention(x, x, x, ctx=ctx, **how), lambda: ringattn.attention(x, x, x, **how)):
        with pytest.raises(ringattn.ArgumentError, match=words):
            call()


def test_windows_of_any_kind_of_sequence(ctx):
    x = torch.randn(1, 9, 2, 8)
    want = rt.attention(x, x, x, window=(4, 0), ctx=ctx)
    for window in ([4, 0], torch.tensor([4, 0])):
        assert torch.equal(rt.attention(x, x, x, window=window, ctx=ctx), want)
    compiled = torch.compile(lambda x: rt.attention(x, x, x, window=[4, 0], ctx=ctx), fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), want)


def test_no_such_dimension(ctx):
    """Not one of the others, which rows would be taken from silently."""
    x = torch.randn(3, 4)
    for dim in (2, -3):
        for call in (rt.shard, rt.unshard):
            with pytest.raises(ringattn.ArgumentError, match="is none of a tensor of shape"):
                call(x, dim, ctx)
    assert torch.equal(rt.shard(x, -1, ctx), x)


def test_batches_without_sequences(ctx):
    for call in (lambda x: rt.attention(x, x, x, ctx=ctx), lambda x: ringattn.attention(x, x, x),
                 lambda x: ringattn.attention(x.numpy(), x.numpy(), x.numpy())):
        with pytest.raises(ringattn.ArgumentError, match="batch is 0"):
            call(torch.randn(0, 9, 2, 8))


def test_copies_of_modules_have_the_same_context(ctx):
    """As those that average weights make."""
    module = torch.nn.Sequential(rt.RingAttention(causal=True, ctx=ctx))
    copied = torch.optim.swa_utils.AveragedModel(module).module
    assert copied is not module and copied[0].ctx is ctx and copy.copy(ctx) is ctx
    x = torch.randn(1, 9, 2, 8)
    assert torch.equal(copied[0](x, x, x), module[0](x, x, x))


def test_pickles(ctx):
    """Modules and problems can be pickled; what belongs to a process says that it cannot."""
    x = torch.randn(1, 9, 2, 8)
    module = pickle.loads(pickle.dumps(rt.RingAttention(causal=True, window=(4, 0))))
    assert torch.equal(module(x, x, x), rt.attention(x, x, x, causal=True, window=(4, 0), ctx=ctx))
    problem = ringattn.Problem(seq_q=8, heads_q=1, dim=4, dilated="4:1")
    assert pickle.loads(pickle.dumps(problem)) == problem
    with ringattn.Comm.single() as comm, ringattn.Plan(comm, problem) as plan:
        for held in (rt.RingAttention(ctx=ctx), comm, plan):
            with pytest.raises(TypeError, match="cannot be (copied or )?pickled"):
                pickle.dumps(held)
        for held in (comm, plan):
            with pytest.raises(TypeError, match="cannot be copied"):
                copy.deepcopy(held)


def in_child(body):
    """What body gives in a child of fork(), as text."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, str(body()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as text:
        said = text.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_forked_children(ctx):
    """Those of a data loader, say. A comm of several ranks is the parent's: it is neither used nor ended by a child.
    One of one rank goes on, whoever was inside a call; so does a call that makes ranks of its own."""
    x = torch.randn(1, 12, 2, 8)
    want = rt.attention(x, x, x, causal=True, ctx=ctx)

    def alone():
        own = rt.attention(x, x, x, causal=True, ctx=ctx)
        cut = ringattn.attention(x, x, x, causal=True, ranks=2)
        return torch.equal(own, want) and bool((cut - want).abs().max() < 1e-5)

    with ctx.turn:
        assert in_child(alone) == "True"

    def of_several(several):
        own = rt.shard(x, 1, several)
        rt.attention(own, own, own, seq_len=12, ctx=several)

        def child():
            try:
                rt.attention(own, own, own, seq_len=12, ctx=several)
            except ringattn.BrokenError as error:
                several.close()
                return error

        said = in_child(child) if several.rank == 0 else ""
        return said, rt.unshard(rt.attention(own, own, own, seq_len=12, causal=True, ctx=several), 1, several)

    results = rt.run_ranks(2, of_several)
    assert "made before a fork" in results[0][0]
    assert all((whole - want).abs().max() < 1e-5 for _, whole in results)


def test_positions_of_many_lengths_are_not_kept():
    """A sequence of a million tokens has megabytes of them."""
    tracemalloc.start()
    try:
        for n in range(20000, 20300):
            ringattn.layout_positions("zigzag", n, 2, 0)
        assert tracemalloc.get_traced_memory()[0] < 16 << 20
    finally:
        tracemalloc.stop()


def test_tensors_of_positions_are_kept_within_limits(ctx, monkeypatch):
    monkeypatch.setattr(positions, "ROWS_KEPT", 3000)
    kept = lambda: [len(x) for x in positions._positions.values()]
    for n in range(1000, 1100):
        ctx.positions(n)
    assert sum(kept()) <= 3000 and kept()[-1] == 1099 and ctx.positions(1099) is ctx.positions(1099)
    ctx.positions(5000)
    assert kept() == [5000]


def test_lengths_that_grow_hold_one_workspace(ctx):
    """Not one for each of the plans that are kept."""
    for n in range(40, 400, 40):
        x = torch.randn(1, n, 2, 16, requires_grad=True)
        rt.attention(x, x, x, causal=True, ctx=ctx).sum().backward()
    held = {plan.memory.data_ptr() for plan in ctx._plans.values()}
    assert held == {memory.data_ptr() for memory in ctx._workspaces.values()} and len(held) == 1


def test_ranks_forget_plans_together():
    """Also where only some of them need more memory: of 61 rows only the first rank has more than of 60."""

    def body(ctx):
        seen = []
        striped = ctx.with_layout("striped")
        for n in (60, 60, 61, 60, 62, 61, 63, 60):
            for own in (ctx, striped):
                x = torch.randn(1, own.rows(n), 2, 16, requires_grad=True)
                rt.attention(x, x, x, seq_len=n, causal=True, ctx=own).sum().backward()
            seen.append((ctx._workspaces[x.device].numel(), len(ctx._plans), len(striped._plans)))
        return seen

    ranks = rt.run_ranks(3, body, layout="contiguous")
    grew = [[b > a for (a, *_), (b, *_) in zip(seen, seen[1:])] for seen in ranks]
    assert any(len(set(flags)) > 1 for flags in zip(*grew)), ranks
    assert all([counts for _, *counts in seen] == [counts for _, *counts in ranks[0]] for seen in ranks), ranks


def test_a_launched_process_without_torch_distributed_is_told(monkeypatch):
    """It would be a rank of its own, and so would all others."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ringattn.ArgumentError, match="init_process_group"):
        rt.init()
    monkeypatch.setenv("WORLD_SIZE", "1")
    rt.init().close()


def test_another_default_device():
    """What goes to the library is on the host, whatever torch.set_default_device says, and results where inputs are."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 19, 2, 8, dtype=torch.float64) for _ in range(3))
    ids, positions = torch.arange(19)[None], torch.cat([torch.arange(7), torch.arange(12)])[None]
    want = ringattn.attention(q, k, v, causal=True, cu_seqlens=[0, 7, 19], ranks=1)

    def body(ctx):
        with torch.device("meta"):
            batch = rt.shard_batch({"input_ids": ids, "labels": ids, "position_ids": positions}, ctx=ctx)
            shards = [rt.shard(x, 1, ctx).requires_grad_() for x in (q, k, v)]
            for cu in ([0, 7, 19], ctx.cu_seqlens):
                o = rt.attention(*shards, causal=True, cu_seqlens=cu, ctx=ctx)
                o.sum().backward()
            assert batch["shift_labels"].device == shards[0].grad.device == q.device
            return rt.unshard(o.detach(), 1, ctx), ringattn.attention(q, k, v, causal=True, cu_seqlens=[0, 7, 19])

    for layout in ("zigzag", "documents"):
        for got in rt.run_ranks(2, body, layout=layout):
            assert all(reference.furthest(x, want) < 1e-12 for x in got)
