#!/usr/bin/env python3
"""Compares the errors of ringattn and of PyTorch's attention on a GPU, both against fp64 on the same inputs.

    bench/peers/torch_accuracy.py build/ringattn [--seq 4096] [--heads 4] [--dim 128] [--ranks 1,4,8]
        [--types bf16,f16,f32] [--kernel NAME]

PyTorch's are its cuDNN and flash backends, and its efficient one for f32.

For machines with a GPU, torch and numpy. Errors are relative, in norm. ringattn's outputs are rounded to the type of the
inputs before they are compared, as torch's are; in brackets is the ratio without that, for callers who take o as f32.
"""
import argparse
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
PEERS = {"bf16": ("cudnn", "flash"), "f16": ("cudnn", "flash"), "f32": ("efficient",)}
SDP = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
       "efficient": SDPBackend.EFFICIENT_ATTENTION}
NAMES = ("o", "dq", "dk", "dv")


def attend(q, k, v, grad, causal, backend):
    """q, k, v, grad [batch, heads, tokens, dim]; returns o, dq, dk, dv."""
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    with sdpa_kernel(backend):
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return (out.detach(), *torch.autograd.grad(out, (q, k, v), grad))


def ringattn(command, inputs, dtype, causal, ranks, kernel):
    with tempfile.TemporaryDirectory() as folder:
        def path(name):
            return os.path.join(folder, name + ".npy")

        for name, tensor in inputs.items():  # files are [batch, tokens, heads, dim]
            np.save(path(name), np.ascontiguousarray(tensor.float().transpose(1, 2).cpu().numpy()))
        args = [command, "run", "--device", "cuda", "--dtype", dtype, "--ranks", str(ranks), "--out", path("o")]
        for name in ("q", "k", "v", "dout"):
            args += ["--" + name, path(name)]
        for name in ("dq", "dk", "dv"):
            args += ["--" + name, path(name)]
        args += ["--kernel", kernel] if kernel else []
        subprocess.run(args + (["--causal"] if causal else []), check=True)
        return [torch.from_numpy(np.load(path(name))).transpose(1, 2).cuda() for name in NAMES]


def errors(got, wanted):
    return [float((g.double() - w).norm() / w.norm()) for g, w in zip(got, wanted)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", help="the ringattn command")
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--ranks", default="1,4,8")
    parser.add_argument("--types", default="bf16,f16,f32")
    parser.add_argument("--kernel", help="of ringattn; default: the best")
    args = parser.parse_args()
    torch.manual_seed(1)
    for dtype in args.types.split(","):
        for causal in (False, True):
            shape = (1, args.heads, args.seq, args.dim)
            inputs = {name: torch.randn(shape, device="cuda").to(TYPES[dtype]) for name in ("q", "k", "v", "dout")}
            wanted = attend(*(x.double() for x in inputs.values()), causal, SDPBackend.MATH)
            theirs = {peer: errors(attend(*inputs.values(), causal, SDP[peer]), wanted) for peer in PEERS[dtype]}
            for ranks in map(int, args.ranks.split(",")):
                outputs = ringattn(args.command, inputs, dtype, causal, ranks, args.kernel)
                ours, exact = errors([x.to(TYPES[dtype]) for x in outputs], wanted), errors(outputs, wanted)
                for peer, their in theirs.items():
                    line = "  ".join(f"{name} {a:.2e} / {b:.2e} = {a / b:.3f} ({c / b:.3f})"
                                     for name, a, b, c in zip(NAMES, ours, their, exact))
                    print(f"{dtype:4s} {'causal' if causal else 'full  '} p={ranks}  ringattn / {peer}:  {line}",
                          flush=True)


if __name__ == "__main__":
    main()
