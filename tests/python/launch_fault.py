"""Run by torchrun: random problems; then the last rank dies or stalls in the middle, and the others must raise, naming
it, before long. They print how long that took."""
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

COMPILER = "torch._dynamo"  # which takes longer to import than all the rest, and which some torch imports by itself
imported_by_torch = COMPILER in sys.modules

import ringattn  # noqa: E402
import ringattn.torch as rt  # noqa: E402

TIMEOUT = 3.0
assert (COMPILER in sys.modules) == imported_by_torch
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from launch_random import random_problems  # noqa: E402


def main(how):
    dist.init_process_group("gloo")
    patient = rt.init()
    random_problems(patient, 12)
    patient.close()
    ctx = rt.init(timeout=TIMEOUT)
    n = 64
    x = torch.randn(1, ctx.rows(n), 2, 16)
    rt.attention(x, x, x, seq_len=n, causal=True, ctx=ctx)
    dist.barrier()
    if ctx.rank == ctx.ranks - 1:
        if how == "dies":
            os._exit(0)  # torchrun would end the others at once if it saw a failure
        time.sleep(TIMEOUT + 4)
        os._exit(0)
    start = time.monotonic()
    try:
        for _ in range(3):
            rt.attention(x, x, x, seq_len=n, causal=True, ctx=ctx)
    except ringattn.Error as error:
        took = time.monotonic() - start
        print(f"raised {type(error).__name__} after {took:.2f} s: {error}", flush=True)
        assert took < TIMEOUT + 2
        assert f"rank {ctx.ranks - 1}" in str(error), str(error)
        return  # and so to an end of the interpreter like any other, which must not wait for anybody
    raise AssertionError("nothing was raised")


if __name__ == "__main__":
    main(sys.argv[1])
