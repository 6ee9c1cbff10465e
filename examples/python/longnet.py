"""Dilated attention (LongNet) as a module, trained a few steps with the sequence cut over two threads.

    python longnet.py
"""
import copy

import torch

import ringattn.torch as rt

TOKENS, WIDTH = 600, 32


def make_model():
    torch.manual_seed(0)
    return rt.MultiheadDilatedAttention(WIDTH, 4, dilation_rates=[1, 4], segment_lengths=[64, 512])


def train(ctx, model, x, target):
    """The loss of each step; the gradients are averaged over the ranks, as DDP would."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    own, goal = rt.shard(x, 1, ctx), rt.shard(target, 1, ctx)
    losses = []
    for _ in range(5):
        out, _ = model(own, own, own, is_causal=True, seq_len=TOKENS)
        loss = (out - goal).square().sum() * ctx.ranks / target.numel()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.grad = torch.stack(ctx.gather(parameter.grad)).mean(0)
        optimizer.step()
        losses.append(float(rt.mean_loss(loss, ctx)))
    return losses


def main():
    torch.manual_seed(1)
    x = torch.randn(1, TOKENS, WIDTH)
    target = x.roll(3, 1)
    model = make_model()  # before there are threads, which share torch's generator
    one, two = (rt.run_ranks(ranks, lambda ctx: train(ctx, copy.deepcopy(model), x, target))[0] for ranks in (1, 2))
    for step, (a, b) in enumerate(zip(one, two)):
        print(f"step {step}: loss {a:.6f} with one rank, {b:.6f} with two")
        assert abs(a - b) < 1e-4 * a
    assert one[-1] < one[0]


if __name__ == "__main__":
    main()
