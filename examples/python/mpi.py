"""Attention over the ranks of an mpi4py communicator: every process has its rows, and no process has the whole.

    mpirun -n 4 python mpi.py           # needs libringattn_mpi: pip install -C cmake.define.RA_MPI=ON .
"""
import numpy as np
from mpi4py import MPI

import ringattn

TOKENS, HEADS, DIM = 10007, 4, 32


def rows_of(comm, layout, seed):
    """This rank's rows of an array that is made position by position, so that it does not depend on the ranks."""
    positions = ringattn.layout_positions(layout, TOKENS, comm.ranks, comm.rank)
    phase = np.arange(1, HEADS * DIM + 1).reshape(1, HEADS, DIM) + seed
    return np.sin(positions[:, None, None] * phase * 0.37).astype("f4")[None]


def main():
    with ringattn.Comm.mpi(MPI.COMM_WORLD) as comm:
        problem = ringattn.Problem(seq_q=TOKENS, heads_q=HEADS, dim=DIM, causal=True)
        with ringattn.Plan(comm, problem, layout="zigzag", backward=True, threads=1) as plan:
            q, k, v = (rows_of(comm, plan.layout, seed) for seed in range(3))
            o, lse = plan.forward(q, k, v)
            dq, dk, dv = plan.backward(q, k, v, o, lse, np.ones_like(o))
            info = plan.info
        total = MPI.COMM_WORLD.allreduce(float(np.square(o, dtype="f8").sum()))
        print(f"rank {comm.rank}: {info.rows_q} of {TOKENS} rows, {info.forward.bytes_sent} bytes sent forward, "
              f"{info.workspace_bytes} bytes of workspace; sum of squares over all {total:.3f}", flush=True)


if __name__ == "__main__":
    main()
