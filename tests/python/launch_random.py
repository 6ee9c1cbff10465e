"""For programs that torchrun runs: random problems, of which each process has its rows, against SDPA. Rank 0 prints
what was shown; any rank that finds a difference fails."""
import numpy as np
import reference
import torch
import torch.distributed as dist

import ringattn.torch as rt
from test_torch import TOLERANCE, whole


def say(text):
    if dist.get_rank() == 0:
        print("shown:", text, flush=True)


def check_problem(ctx, seed, arrays, sizes, pattern, expected, tolerance, device="cpu"):
    """arrays: q, k, v, dout, whole; expected: o, dq, dk, dv. Each process computes with its rows."""
    *inputs, dout = (x.to(device) for x in arrays)
    inputs = [x.clone().requires_grad_() for x in inputs]
    shards = [rt.shard(x, 1, ctx) for x in inputs]
    o = rt.attention(*shards, seq_len=sizes["seq_q"], seq_len_k=sizes["seq_k"], ctx=ctx, **pattern)
    o = rt.unshard(o, 1, ctx)
    o.backward(dout)
    for name, got, want in zip(("o", "dq", "dk", "dv"), [o.detach()] + [x.grad for x in inputs], expected):
        assert reference.furthest(got.to(want), want) < tolerance, (name, seed, dout.dtype, sizes, pattern)


def random_problems(ctx, count):
    for seed in range(count):
        rng = np.random.default_rng(9000 + seed)
        sizes, pattern = reference.random_problem(rng, most=60)
        dtype = torch.float64 if rng.random() < 0.5 else torch.float32
        arrays = [torch.from_numpy(x).to(dtype) for x in reference.arrays(rng, sizes, "float64")]
        check_problem(ctx, seed, arrays, sizes, pattern, whole(*arrays, sizes, pattern), TOLERANCE[dtype])
    say(f"{count} random problems")
