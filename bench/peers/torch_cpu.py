#!/usr/bin/env python3
"""Times PyTorch's CPU attention and ringattn on the same shapes in the same run, and prints the ratio.

    bench/peers/torch_cpu.py build/ringattn [--repeat 5] [--threads N]

For machines that have torch; no part of the tests. Rates are 4 * pairs * dim forward and 2.5 times that backward, pairs
being the visible ones, for both.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch
import torch.nn.functional as functional

SHAPES = [(4096, 128, False), (8192, 128, True), (4096, 64, False), (8192, 64, True)]
HEADS = 8


def median_seconds(run, repeat):
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def torch_rates(seq, dim, causal, dtype, repeat):
    """GFLOP/s forward and backward."""
    q, k, v = (torch.randn(1, HEADS, seq, dim).to(dtype).requires_grad_() for _ in range(3))
    grad = torch.randn(1, HEADS, seq, dim).to(dtype)
    pairs = HEADS * (seq * (seq + 1) // 2 if causal else seq * seq)

    def forward():
        with torch.no_grad():
            functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def backward():
        torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

    flops = 4 * pairs * dim
    return flops / median_seconds(forward, repeat) / 1e9, 2.5 * flops / median_seconds(backward, repeat) / 1e9


def ringattn_rates(command, seq, dim, causal, dtype, repeat, threads):
    args = [command, "bench", "--json", "--backward", "--seq", str(seq), "--heads", str(HEADS), "--dim", str(dim),
            "--dtype", dtype, "--repeat", str(repeat), "--ranks", "1", "--threads", str(threads)]
    rows = json.loads(subprocess.run(args + (["--causal"] if causal else []), check=True, capture_output=True).stdout)
    return {row["pass"]: row["gflops"] for row in rows}, rows[0]["kernel"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", help="the ringattn command")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dtypes", default="f32,bf16")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} threads, batch 1, {HEADS} heads; GFLOP/s")
    for dtype in args.dtypes.split(","):
        torch_dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        a, b = (torch.randn(4096, 4096).to(torch_dtype) for _ in range(2))
        gemm = 2 * 4096**3 / median_seconds(lambda: a @ b, args.repeat) / 1e9
        print(f"{dtype}: torch's own matrix product (4096) {gemm:.0f}")
        for seq, dim, causal in SHAPES:
            theirs = dict(zip(("forward", "backward"), torch_rates(seq, dim, causal, torch_dtype, args.repeat)))
            ours, kernel = ringattn_rates(args.command, seq, dim, causal, dtype, args.repeat, args.threads)
            for which in ("forward", "backward"):
                print(f"  n {seq:5d} dim {dim:3d} {'causal' if causal else 'full  '} {which:8s}"
                      f"  torch {theirs[which]:7.0f}  ringattn {ours[which]:7.0f} ({kernel})"
                      f"  ratio {ours[which] / theirs[which]:.2f}  of the product {ours[which] / gemm:.2f}", flush=True)


if __name__ == "__main__":
    main()
