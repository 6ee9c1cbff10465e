"""Run by launch_all.py, one process per rank: random problems against SDPA, and a tiny Llama under DDP and FSDP2
against one process. Rank 0 prints what it has shown, one line each; any rank that finds a difference fails."""
import pytest
import reference
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

import ringattn.hf
import ringattn.torch as rt
from launch_random import random_problems, say
from ringattn.torch.connect import for_group
from test_training import N, batch_of, by_hand, close, gradients, tiny


def compiled(ctx):
    torch.manual_seed(3)
    inputs = [torch.randn(1, 23, 2, 8, dtype=torch.float64) for _ in range(3)]

    def f(q, k, v):
        shards = [rt.shard(x, 1, ctx) for x in (q, k, v)]
        return rt.unshard(rt.attention(*shards, seq_len=23, causal=True, ctx=ctx), 1, ctx, seq_len=23).sin()

    results = []
    for function in (f, torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=False)):
        leaves = [x.clone().requires_grad_() for x in inputs]
        o = function(*leaves)
        o.sum().backward()
        results.append([o.detach()] + [x.grad for x in leaves])
    for eager, graph in zip(*results):
        assert (eager == graph).all()
    batch = rt.shard_batch({"input_ids": batch_of(False)["input_ids"][:, :31]}, ctx=ctx)
    how = dict(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)
    model = tiny("ringattn")
    whole = torch.compile(model, fullgraph=True, backend="aot_eager")(**how).logits
    assert (whole - model(**how).logits).abs().max() < 1e-10
    say("compiled equals eager")


def step(model, ctx, batch):
    own = rt.shard_batch(batch, ctx=ctx)
    logits = model(input_ids=own["input_ids"], position_ids=own["position_ids"]).logits
    loss = rt.cross_entropy(logits, own["shift_labels"], own["num_items_in_batch"], ctx)
    loss.backward()
    return float(rt.mean_loss(loss, ctx))


def under_ddp(model):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model), lambda: gradients(model)


def under_fsdp2(model, checkpointing=False):
    from torch.distributed.fsdp import fully_shard

    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": rt.save_attention})
        model.train()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, lambda: {name: p.grad.full_tensor() for name, p in model.named_parameters()}


def training(ctx):
    runs = reference.count_calls("ra_plan_forward")
    ways = {"DDP": under_ddp, "FSDP2": under_fsdp2, "FSDP2 with checkpointing": lambda m: under_fsdp2(m, True)}
    for packed in (False, True):
        batch = batch_of(packed)
        one = tiny("sdpa")
        want = by_hand(one, batch, [0, 9, 10, 30, N] if packed else [0, N])
        want.backward()
        for name, way in ways.items():
            model, grads = way(tiny("ringattn"))
            runs.clear()
            loss = step(model, ctx, batch)
            assert len(runs) == 2, (name, runs)  # one for each layer, checkpointed or not
            assert abs(loss - want.item()) < 1e-6 * abs(want.item()), (name, loss, want.item())
            worst = close(grads(), gradients(one))
            say(f"{name}, {'packed' if packed else 'one document'}, as one process to {worst:.1e}")


def on_two_axes():
    """Two sequences at a time, each over two ranks; FSDP2 on the flattened mesh. The mean of both losses' gradients."""
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
    ctx = rt.init(mesh["cp"])
    model = tiny("ringattn")
    everyone = mesh["dp", "cp"]._flatten("dp_cp")
    for layer in model.model.layers:
        fully_shard(layer, mesh=everyone)
    fully_shard(model, mesh=everyone)
    step(model, ctx, batch_of(mesh.get_local_rank("dp") == 1))
    one = tiny("sdpa")
    ((by_hand(one, batch_of(False), [0, N]) + by_hand(one, batch_of(True), [0, 9, 10, 30, N])) / 2).backward()
    worst = close({name: p.grad.full_tensor() for name, p in model.named_parameters()}, gradients(one))
    ctx.close()
    say(f"FSDP2 on two axes, as one process to {worst:.1e}")


def other_interfaces(ctx):
    """torch's context_parallel with a mesh, and ring_flash_attn with the default group."""
    from ringattn.compat.context_parallel import context_parallel, context_parallel_unshard
    from ringattn.compat.ring_flash_attn import zigzag_ring_flash_attn_qkvpacked_func

    sdpa = torch.nn.functional.scaled_dot_product_attention
    torch.manual_seed(4)
    n = 6 * dist.get_world_size()
    inputs = [torch.randn(1, n, 2, 8, dtype=torch.float64) for _ in range(3)]
    want = sdpa(*(x.transpose(1, 2) for x in inputs), is_causal=True).transpose(1, 2)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))
    buffers = [x.clone() for x in inputs]
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1] * 3):
        call = torch.nn.functional.scaled_dot_product_attention
        o = call(*(x.transpose(1, 2) for x in buffers), is_causal=True).transpose(1, 2)
    assert reference.furthest(context_parallel_unshard(mesh, [o], [1])[0], want) < 1e-12
    assert all((buffer == x).all() for buffer, x in zip(buffers, inputs))
    assert rt.current() is ctx  # still, and it serves the other interfaces too
    qkv = rt.shard(torch.stack(inputs, 2), 1, ctx)
    assert reference.furthest(rt.unshard(zigzag_ring_flash_attn_qkvpacked_func(qkv, causal=True), 1, ctx), want) < 1e-12
    assert rt.current() is ctx and for_group(None, ctx.layout) is ctx
    say("context_parallel and ring_flash_attn")


def groups_of_others(ctx):
    """A process that is not in a group is told so; a mesh of several dimensions is refused, and so are its tensors."""
    first = dist.new_group([0])
    if dist.get_rank() > 0:
        with pytest.raises(ringattn.ArgumentError, match="no member of the group"):
            rt.init(first)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(), 1))
    with pytest.raises(ringattn.ArgumentError, match="2 dimensions"):
        rt.init(mesh)
    spread = DTensor.from_local(torch.randn(1, ctx.rows(8), 2, 8), mesh, [Replicate(), Replicate()])
    with pytest.raises(ringattn.ArgumentError, match="q is a DTensor; give x.to_local"):
        rt.attention(spread, spread, spread, seq_len=8, ctx=ctx)
    assert rt.current() is ctx
    say("groups of others")


def show():
    ctx = rt.init(timeout=60)
    assert ctx.comm.transport == "ucx" or dist.get_world_size() == 1
    ringattn.hf.register()
    random_problems(ctx, 12)
    compiled(ctx)
    training(ctx)
    other_interfaces(ctx)
    groups_of_others(ctx)
    if dist.get_world_size() == 4:
        on_two_axes()
    dist.barrier()
    ctx.close()
