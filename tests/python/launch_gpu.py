"""Run by torchrun: processes over NCCL, all of them on one GPU where there is only one; attention and a tiny Llama as
in one process, and memory as planned. Rank 0 prints what it has shown.

NCCL refuses two ranks on one GPU of one machine; with different NCCL_HOSTIDs it takes them for machines of their own.
"""
import os
import pathlib
import sys

os.environ.setdefault("NCCL_HOSTID", f"ringattn-{os.environ['RANK']}")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import numpy as np  # noqa: E402
import reference  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import ringattn  # noqa: E402
import ringattn.hf  # noqa: E402
import ringattn.torch as rt  # noqa: E402
from launch_random import check_problem, say  # noqa: E402
from test_torch import whole  # noqa: E402
from test_training import N, batch_of, by_hand, close, gradients, tiny  # noqa: E402

TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random_problems(ctx, count):
    for seed in range(count):
        rng = np.random.default_rng(5000 + seed)
        sizes, pattern = reference.random_problem(rng, most=150)
        dtype = list(TOLERANCE)[seed % 4]
        arrays = [torch.from_numpy(x).to(dtype) for x in reference.arrays(rng, sizes, "float64")]
        expected = whole(*(x.double() for x in arrays), sizes, pattern)
        check_problem(ctx, seed, arrays, sizes, pattern, expected, TOLERANCE[dtype], "cuda")
    ctx.wait()
    assert [comm.transport for comm in ctx._device_comms.values()] == ["nccl"]
    say(f"{count} random problems over NCCL")


def as_one_process(ctx):
    """Long, in bf16: every rank's rows of a ring of 4 equal those of one rank to the rounding of bf16."""
    n = 4096 + 7
    torch.manual_seed(0)
    q, k, v, dout = (torch.randn(1, n, heads, 128, device="cuda", dtype=torch.bfloat16) for heads in (8, 2, 2, 8))
    from ringattn.torch.context import Context

    results = []
    for here in (Context(ringattn.Comm.single()), ctx):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        shards = [rt.shard(x, 1, here) for x in leaves]
        o = rt.unshard(rt.attention(*shards, seq_len=n, causal=True, ctx=here), 1, here)
        o.backward(dout)
        results.append([o.detach()] + [x.grad for x in leaves])
    for one, many in zip(*results):
        assert reference.furthest(many.double().cpu(), one.double().cpu()) < 2e-2
    say("4103 tokens of bf16 as in one process")


def training(ctx):
    """In double: DDP's mean of the gradients is one process's."""
    batch = batch_of(True)
    one = tiny("sdpa")
    want = by_hand(one, batch, [0, 9, 10, 30, N])
    want.backward()
    model = tiny("ringattn").cuda()
    own = rt.shard_batch({name: x.cuda() for name, x in batch.items()}, ctx=ctx)
    logits = model(input_ids=own["input_ids"], position_ids=own["position_ids"]).logits
    loss = rt.cross_entropy(logits, own["shift_labels"], own["num_items_in_batch"], ctx)
    loss.backward()
    assert abs(float(rt.mean_loss(loss, ctx)) - want.item()) < 1e-9 * want.item()
    mean = {name: torch.stack(ctx.gather(p.grad)).mean(0).cpu() for name, p in model.named_parameters()}
    say(f"a packed Llama as in one process, to {close(mean, gradients(one)):.1e}")


def memory(ctx):
    """A training step of attention has, beside tensors, the workspace that was planned for this rank."""
    n = 16384
    rows = ctx.rows(n)
    inputs = [torch.randn(1, rows, 8, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    problem = ringattn.Problem(seq_q=n, heads_q=8, dim=128, dtype="bf16", causal=True)
    planned = ringattn.predict(problem, ctx.ranks, ctx.rank, backward=True, layout=ctx.layout, device="cuda:0")
    ctx._workspaces.clear()  # those of other problems do not count
    ctx._plans.clear()
    ctx._last_plans.clear()
    dout = torch.randn_like(inputs[0])
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    rt.attention(*inputs, seq_len=n, causal=True, ctx=ctx).backward(dout)
    ctx.wait()
    tensors = 4 * dout.numel() * 2 + 8 * rows * 4
    peak = torch.cuda.max_memory_allocated() - before
    assert peak <= planned.workspace_bytes + tensors + (4 << 20), (peak, planned.workspace_bytes, tensors)
    say(f"a step's peak is {peak} bytes: planned {planned.workspace_bytes}, tensors {tensors}")


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("gloo")
    ctx = rt.init(timeout=60)
    ringattn.hf.register(ctx)
    random_problems(ctx, 16)
    as_one_process(ctx)
    training(ctx)
    memory(ctx)
    dist.barrier()
    ctx.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
