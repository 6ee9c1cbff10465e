#!/usr/bin/env python3
"""Times PyTorch's attention on a GPU and ringattn on the same shapes in the same run, and prints the ratios.

    bench/peers/torch_cuda.py build/ringattn [--repeat 20] [--backends flash,cudnn,efficient] [--only REGEX] [--json FILE]

For machines with a GPU and torch; no part of the tests. Medians of single calls, with the device idle before and after
each; torch's with events around the call, ringattn's by `ringattn bench`, from the call until the device is done. Rates
are 4 * pairs * dim forward and 2.5 times that backward, pairs being the visible ones, for both. ringattn's outputs are
f32 there, torch's of the inputs' type.
"""
import argparse
import json
import re
import statistics
import subprocess

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

# dtype, batch, heads, heads of keys, tokens, dim, causal
SHAPES = [("bf16", 1, 16, 16, 4096, 128, False), ("bf16", 1, 16, 16, 4096, 128, True),
          ("bf16", 1, 16, 16, 16384, 128, False), ("bf16", 1, 16, 16, 16384, 128, True),
          ("bf16", 1, 16, 4, 16384, 128, True), ("bf16", 1, 32, 32, 16384, 64, False),
          ("bf16", 1, 32, 32, 16384, 64, True), ("bf16", 1, 16, 16, 16384, 96, True),
          ("bf16", 1, 16, 16, 65536, 128, True), ("bf16", 1, 8, 8, 16384, 256, True),
          ("bf16", 4, 16, 16, 2048, 128, True), ("f16", 1, 16, 16, 16384, 128, True),
          ("f32", 1, 16, 16, 8192, 128, False), ("f32", 1, 16, 16, 8192, 128, True)]
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}


def median_seconds(run, repeat):
    for _ in range(3):
        run()
    times = []
    for _ in range(repeat):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return statistics.median(times)


def product_rate(repeat):
    """TFLOP/s of a large product of bf16, which nothing here can exceed."""
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    return 2 * 8192**3 / median_seconds(lambda: a @ b, repeat) / 1e12


def torch_rates(backend, dtype, batch, heads, kv_heads, seq, dim, causal, repeat):
    """TFLOP/s forward and backward; None where this backend does not do it."""
    q, grad = (torch.randn(batch, heads, seq, dim, device="cuda").to(TYPES[dtype]) for _ in range(2))
    k, v = (torch.randn(batch, kv_heads, seq, dim, device="cuda").to(TYPES[dtype]).requires_grad_() for _ in range(2))
    q.requires_grad_()
    flops = 4 * dim * batch * heads * (seq * (seq + 1) // 2 if causal else seq * seq)
    more = {"is_causal": causal, "enable_gqa": heads != kv_heads}
    try:
        with sdpa_kernel(BACKENDS[backend]):
            out = functional.scaled_dot_product_attention(q, k, v, **more)

            def forward():
                with torch.no_grad():
                    functional.scaled_dot_product_attention(q, k, v, **more)

            def backward():
                torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

            return {"forward": flops / median_seconds(forward, repeat) / 1e12,
                    "backward": 2.5 * flops / median_seconds(backward, repeat) / 1e12}
    except RuntimeError:
        return None


def ringattn_rates(args, dtype, batch, heads, kv_heads, seq, dim, causal):
    command = [args.command, "bench", "--json", "--backward", "--device", "cuda", "--seq", str(seq), "--batch",
               str(batch), "--heads", str(heads), "--kv-heads", str(kv_heads), "--dim", str(dim), "--dtype", dtype,
               "--repeat", str(args.repeat), "--ranks", "1"]
    command += ["--kernel", args.kernel] if args.kernel else []
    command += ["--causal"] if causal else []
    rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {row["pass"]: row["gflops"] / 1000 for row in rows}, rows[0]["kernel"]


def label(dtype, batch, heads, kv_heads, seq, dim, causal):
    return f"{dtype:4s} {batch} {heads:2d}:{kv_heads:<2d} n {seq:6d} dim {dim:3d} {'causal' if causal else 'full  '}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", help="the ringattn command")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--backends", default="flash,cudnn,efficient")
    parser.add_argument("--kernel", help="of ringattn; default: the best")
    parser.add_argument("--only", default="", help="rows that have this in them, such as 'dim 256'")
    parser.add_argument("--json", help="file to write all rates to")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    product = product_rate(args.repeat)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; TFLOP/s (ratio of ringattn to it); "
          f"product of 8192 x 8192 x 8192: {product:.0f}")
    rows = []
    for shape in (shape for shape in SHAPES if re.search(args.only, label(*shape))):
        dtype, batch, heads, kv_heads, seq, dim, causal = shape
        torch.cuda.empty_cache()
        ours, kernel = ringattn_rates(args, *shape)
        theirs = {name: torch_rates(name, *shape, args.repeat) for name in args.backends.split(",")}
        for which in ("forward", "backward"):
            line = f"{label(*shape)} {which:8s}  ringattn {ours[which]:6.1f} ({kernel}, {ours[which] / product:.2f} of the product)"
            for name, rates in theirs.items():
                line += f"  {name} {rates[which]:6.1f} ({ours[which] / rates[which]:.2f})" if rates else f"  {name} -"
            print(line, flush=True)
            rows.append({"dtype": dtype, "batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "dim": dim,
                         "causal": causal, "pass": which, "kernel": kernel, "product": product,
                         "ringattn": ours[which],
                         **{name: rates[which] if rates else None for name, rates in theirs.items()}})
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
