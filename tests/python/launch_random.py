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


def random_problems(ctx, count):
    for seed in range(count):
        rng = np.random.default_rng(9000 + seed)
        sizes, pattern = reference.random_problem(rng, most=60)
        dtype = torch.float64 if rng.random() < 0.5 else torch.float32
        q, k, v, dout = (torch.from_numpy(x).to(dtype) for x in reference.arrays(rng, sizes, "float64"))
        expected = whole(q, k, v, dout, sizes, pattern)
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        shards = [rt.shard(x, 1, ctx) for x in inputs]
        o = rt.attention(*shards, seq_len=sizes["seq_q"], seq_len_k=sizes["seq_k"], ctx=ctx, **pattern)
        o = rt.unshard(o, 1, ctx)
        o.backward(dout)
        for name, got, want in zip(("o", "dq", "dk", "dv"), [o.detach()] + [x.grad for x in inputs], expected):
            assert reference.furthest(got, want) < TOLERANCE[dtype], (name, seed, sizes, pattern)
    say(f"{count} random problems")
