"""Run by mpirun: attention over the ranks of an mpi4py communicator, whose ranks differ from those of the world."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import numpy as np  # noqa: E402
import reference  # noqa: E402
from mpi4py import MPI  # noqa: E402

import ringattn  # noqa: E402

world = MPI.COMM_WORLD
turned = world.Split(0, -world.rank)
problem = ringattn.Problem(seq_q=37, heads_q=4, heads_kv=2, dim=8, dtype="f64", causal=True)
rng = np.random.default_rng(0)
q = rng.standard_normal((1, 37, 4, 8))
k, v = (rng.standard_normal((1, 37, 2, 8)) for _ in range(2))
with ringattn.Comm.mpi(turned) as comm:
    assert (comm.rank, comm.ranks, comm.transport) == (turned.rank, turned.size, "mpi")
    with ringattn.Plan(comm, problem, layout="zigzag", backward=True, threads=1) as plan:
        mine = [ringattn.shard(x, 1, layout="zigzag", ranks=comm.ranks, rank=comm.rank) for x in (q, k, v)]
        o, lse = plan.forward(*mine)
        grads = plan.backward(*mine, o, lse, np.ones_like(o))
    expected = reference.attention(q, k, v, np.ones(q.shape), causal=True)
    for got, want in zip((o, *grads), (expected[0], *expected[2:])):
        assert reference.furthest(got, ringattn.shard(want, 1, layout="zigzag", ranks=comm.ranks,
                                                      rank=comm.rank)) < 1e-12
world.Barrier()
if world.rank == 0:
    print("shown: mpi4py", flush=True)
