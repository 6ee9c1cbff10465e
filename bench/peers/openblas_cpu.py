#!/usr/bin/env python3
"""Times OpenBLAS's sgemm and ringattn in f32 in the same run, in turns, and prints the ratio of their rates.

    bench/peers/openblas_cpu.py build/ringattn [--repeat 5] [--threads N] [--kernel NAME] [--size 2048]

For machines that have OpenBLAS (Debian: libopenblas0-pthread); no part of the tests. Rates are 2 n^3 for the product,
4 * pairs * dim for the forward pass and 2.5 times that for the backward pass. Two clocks: wall time, and processor time
divided by the number of threads, which other work on the machine disturbs less.
"""
import argparse
import ctypes
import ctypes.util
import json
import os
import random
import statistics
import subprocess
import time

SHAPES = [(4096, 128), (4096, 64)]
HEADS = 4


def load_openblas(threads):
    name = ctypes.util.find_library("openblas")
    if not name:
        raise SystemExit("openblas_cpu.py: there is no OpenBLAS here (Debian: apt-get install libopenblas0-pthread)")
    blas = ctypes.CDLL(name)
    blas.openblas_set_num_threads(threads)
    blas.openblas_get_corename.restype = ctypes.c_char_p
    return blas


def sgemm_rates(blas, matrices, size, threads):
    """GFLOP/s by the wall clock and by processor time."""
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    row_major, plain = 101, 111
    wall, cpu = time.perf_counter(), time.process_time()
    blas.cblas_sgemm(row_major, plain, plain, size, size, size, one, matrices[0], size, matrices[1], size, zero,
                     matrices[2], size)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return 2e-9 * size**3 / wall, 2e-9 * size**3 / (cpu / threads)


def ringattn_rates(args, seq, dim):
    """{pass: (GFLOP/s by the wall clock, by processor time)}"""
    command = [args.command, "bench", "--json", "--backward", "--seq", str(seq), "--heads", str(HEADS), "--dim", str(dim),
               "--dtype", "f32", "--repeat", "1", "--ranks", "1", "--threads", str(args.threads), "--kernel", args.kernel]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {row["pass"]: (row["gflops"], row["gflops"] * row["seconds"] / (row["cpu_seconds"] / args.threads))
            for row in rows}, rows[0]["kernel"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", help="the ringattn command")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--kernel", default="auto")
    parser.add_argument("--size", type=int, default=2048)
    args = parser.parse_args()
    blas = load_openblas(args.threads)
    matrices = [(ctypes.c_float * args.size**2)() for _ in range(3)]
    for matrix in matrices[:2]:
        line = [random.random() for _ in range(args.size)]
        for i in range(args.size):
            matrix[i * args.size:(i + 1) * args.size] = line[i % 7:] + line[:i % 7]
    sgemm_rates(blas, matrices, args.size, args.threads)
    print(f"OpenBLAS for {blas.openblas_get_corename().decode()}, {args.threads} threads, {HEADS} heads, f32; GFLOP/s")
    for seq, dim in SHAPES:
        products, passes, kernel = [], {"forward": [], "backward": []}, ""
        for _ in range(args.repeat):
            products.append(statistics.median(sgemm_rates(blas, matrices, args.size, args.threads)[i] for _ in range(3))
                            for i in range(2))
            rates, kernel = ringattn_rates(args, seq, dim)
            for which in passes:
                passes[which].append(rates[which])
        products = [tuple(p) for p in products]
        for which, rates in passes.items():
            for i, clock in enumerate(("wall", "cpu ")):
                theirs = statistics.median(p[i] for p in products)
                ours = statistics.median(r[i] for r in rates)
                print(f"  n {seq} dim {dim:3d} {which:8s} {clock}  sgemm {theirs:6.1f}  ringattn {ours:6.1f} ({kernel})"
                      f"  ratio {ours / theirs:.2f}", flush=True)


if __name__ == "__main__":
    main()
