"""Comms, plans, predictions and layouts."""
import gc
import time

import numpy as np
import pytest
import reference
import ringattn
from ringattn import Comm, Plan, Problem

PROBLEM = Problem(seq_q=37, heads_q=2, dim=8, dtype="f64", causal=True)


def whole(problem, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((1, problem.seq_q, problem.heads_q, problem.dim)) for _ in range(3)]


def test_plan_runs_many_times():
    q, k, v = whole(PROBLEM)

    def body(comm):
        with Plan(comm, PROBLEM, layout="zigzag", backward=True, threads=1) as plan:
            assert plan.info.rows_q == ringattn.layout_rows("zigzag", 37, 3, comm.rank)
            mine = [ringattn.shard(x, 1, layout="zigzag", ranks=3, rank=comm.rank) for x in (q, k, v)]
            first, _ = plan.forward(*mine)
            o, lse = plan.forward(*mine)
            assert (first == o).all()
            assert plan.info.forward.bytes_sent == plan.info.forward.bytes_planned
            return (o, *plan.backward(*mine, o, lse, np.ones_like(o)))

    results = ringattn.run_ranks(3, body)
    expected = reference.attention(q, k, v, np.ones(q.shape), causal=True)
    for i, want in zip(range(4), (expected[0], *expected[2:])):
        got = ringattn.unshard([result[i] for result in results], 1, layout="zigzag")
        assert reference.furthest(got, want) < 1e-12


def test_lse_of_any_strides():
    """Token by token, [rows, heads], as other programs have it; a run with a dense one follows on the same plan."""
    q, k, v = whole(PROBLEM)
    want = reference.attention(q, k, v, np.ones(q.shape), causal=True)
    with Comm.single() as comm, Plan(comm, PROBLEM, backward=True, threads=1) as plan:
        turned = np.empty((1, 37, 2)).swapaxes(1, 2)
        for lse in (turned, np.empty((1, 2, 37))[:, ::-1], None):
            o, lse = plan.forward(q, k, v, lse=lse)
            assert reference.furthest(lse, want[1]) < 1e-12
            for got, expected in zip(plan.backward(q, k, v, o, lse, np.ones_like(o)), want[2:]):
                assert reference.furthest(got, expected) < 1e-12
        with pytest.raises(ringattn.ArgumentError, match="must not share memory"):
            plan.forward(q, k, v, lse=np.broadcast_to(np.zeros(37), (1, 2, 37)))


def test_ranks_without_rows():
    """They write to the empty arrays that the plan makes for them, or that they give."""
    problem = Problem(seq_q=2, heads_q=2, dim=8, dtype="f64")
    q, k, v = whole(problem)
    want = reference.attention(q, k, v, np.ones(q.shape))

    def body(comm, give):
        mine = [ringattn.shard(x, 1, layout="striped", ranks=4, rank=comm.rank) for x in (q, k, v)]
        rows = mine[0].shape[1]
        given = [np.empty((1, rows, 2, 8)), np.empty((1, 2, rows))] if give else []
        with Plan(comm, problem, layout="striped", backward=True, threads=1, timeout=5) as plan:
            o, lse = plan.forward(*mine, *given)
            given = [np.empty((1, rows, 2, 8)) for _ in range(3)] if give else []
            return (o, *plan.backward(*mine, o, lse, np.ones_like(o), *given))

    for give in (False, True):
        results = ringattn.run_ranks(4, lambda comm: body(comm, give))
        for i, expected in zip(range(4), (want[0], *want[2:])):
            got = ringattn.unshard([result[i] for result in results], 1, layout="striped")
            assert reference.furthest(got, expected) < 1e-12


def test_prediction_is_what_is_planned():
    predicted = [ringattn.predict(PROBLEM, 3, rank, backward=True, threads=1) for rank in range(3)]
    infos = ringattn.run_ranks(3, lambda comm: Plan(comm, PROBLEM, backward=True, threads=1).info)
    assert infos == predicted
    steps = ringattn.predict_steps(PROBLEM, 3, 1)
    assert len(steps) == predicted[1].steps_forward
    assert sum(step.bytes_sent for step in steps) == predicted[1].forward.bytes_planned
    assert sum(step.pairs for step in steps) == predicted[1].pairs


def test_closed_comm_closes_its_plans():
    comm = Comm.single()
    plan = Plan(comm, PROBLEM)
    comm.close()
    comm.close()
    with pytest.raises(ringattn.BrokenError, match="closed"):
        plan.forward(*whole(PROBLEM))
    with pytest.raises(ringattn.BrokenError, match="closed"):
        Plan(comm, PROBLEM)


def test_collected_in_any_order():
    for _ in range(20):
        comm = Comm.single()
        comm.cycle = [comm, Plan(comm, PROBLEM), Plan(comm, PROBLEM)]
        del comm
    gc.collect()


def test_ranks_that_disagree():
    with pytest.raises(ringattn.MismatchError, match="causal"):
        ringattn.run_ranks(2, lambda comm: Plan(comm, Problem(seq_q=9, heads_q=1, dim=4, causal=comm.rank == 0)))


def test_the_error_is_of_the_rank_that_failed():
    def body(comm):
        with Plan(comm, PROBLEM, timeout=20) as plan:
            if comm.rank == 1:
                raise KeyError("mine")
            plan.forward(*(ringattn.shard(x, 1, layout=plan.layout, ranks=3, rank=comm.rank) for x in whole(PROBLEM)))

    start = time.monotonic()
    with pytest.raises(KeyError, match="mine"):
        ringattn.run_ranks(3, body)
    assert time.monotonic() - start < 10


def test_a_silent_peer_is_a_timeout():
    def body(comm):
        with Plan(comm, PROBLEM, timeout=0.3) as plan:
            if comm.rank == 0:
                time.sleep(2)
                return
            plan.forward(*(ringattn.shard(x, 1, layout=plan.layout, ranks=2, rank=comm.rank) for x in whole(PROBLEM)))

    with pytest.raises(ringattn.PeerTimeoutError) as raised:
        ringattn.run_ranks(2, body)
    assert isinstance(raised.value, TimeoutError) and "rank 0" in str(raised.value)


def test_outputs_that_cannot_be_written():
    with Comm.single() as comm, Plan(comm, PROBLEM) as plan:
        q, k, v = whole(PROBLEM)
        with pytest.raises(ringattn.ArgumentError, match="share memory"):
            plan.forward(q, k, v, o=_writeable_broadcast(q.shape))
        fixed = np.zeros(q.shape)
        fixed.flags.writeable = False
        with pytest.raises(ringattn.ArgumentError, match="writeable"):
            plan.forward(q, k, v, o=fixed)
        with pytest.raises(ringattn.ArgumentError, match="k has shape"):
            plan.forward(q, k[:, :5], v)
        with pytest.raises(ringattn.ArgumentError, match="lse must be f64"):
            plan.forward(q, k, v, lse=np.zeros((1, 2, 37), "f4"))


def _writeable_broadcast(shape):
    return np.lib.stride_tricks.as_strided(np.zeros(1), shape, (0,) * len(shape), writeable=True)


def test_out_dtype():
    problem = Problem(seq_q=20, heads_q=2, dim=8, dtype="f16", out_dtype="f32")
    q, k, v = (x.astype("f2") for x in whole(problem))
    with Comm.single() as comm, Plan(comm, problem) as plan:
        o, _ = plan.forward(q, k, v)
    assert o.dtype == np.float32
    assert reference.furthest(o, reference.attention(q, k, v)[0]) < 1e-5


def test_a_failing_allgather_is_the_error():
    """What the caller's function raises comes out, not through C."""

    def allgather(mine):
        raise KeyError("nobody there")

    with pytest.raises((KeyError, ringattn.UnsupportedError), match="nobody there|UCX|ucp"):
        Comm.ucx(0, 2, allgather, timeout=5)


def test_allgather():
    gathered = ringattn.run_ranks(3, lambda comm: comm.allgather(bytes([comm.rank] * 5)))
    assert gathered == [[b"\0" * 5, b"\1" * 5, b"\2" * 5]] * 3


@pytest.mark.parametrize("layout", ["contiguous", "zigzag", "striped", "documents"])
@pytest.mark.parametrize("n, ranks", [(1, 1), (2, 4), (23, 4), (24, 3)])
def test_shard_and_back(layout, n, ranks):
    x = np.arange(2 * n * 3).reshape(2, n, 3)
    cu = [0, n // 3, n // 3, n]
    shards = [ringattn.shard(x, 1, layout=layout, ranks=ranks, rank=rank, cu_seqlens=cu) for rank in range(ranks)]
    positions = [ringattn.layout_positions(layout, n, ranks, rank, cu) for rank in range(ranks)]
    assert sorted(np.concatenate(positions)) == list(range(n))
    for own, at in zip(shards, positions):
        assert (own == x[:, at]).all()
    assert (ringattn.unshard(shards, -2, layout=layout, cu_seqlens=cu) == x).all()


def test_layout_refusals():
    with pytest.raises(ringattn.ArgumentError, match="auto must be resolved"):
        ringattn.layout_rows("auto", 5, 2, 0)
    with pytest.raises(ringattn.ArgumentError, match="rank 0 of 2 has 3 of 5"):
        ringattn.unshard([np.zeros((1, 2)), np.zeros((1, 3))], 1, layout="contiguous")
    with pytest.raises(ringattn.ArgumentError, match="give cu_seqlens"):
        ringattn.shard(np.zeros((1, 9)), 1, layout="documents", ranks=2, rank=0)
    long = Problem(seq_q=1 << 16, heads_q=8, dim=64, causal=True)
    assert ringattn.layout_resolve(long, 4) in ("zigzag", "striped")
    assert ringattn.layout_resolve(long, 4, layout="contiguous") == "contiguous"
