#!/usr/bin/env python3
"""Times messages between two processes of this machine over ringattn's UCX transport and over Open MPI, in turns.

    bench/peers/openmpi_bandwidth.py BUILD [--rounds 5]

BUILD is a build folder with tests (tests/ucx/ucx_bandwidth, tests/ucx/mpi_bandwidth). Each process sends and receives
at once, 64 KiB to 64 MiB. Once over shared memory, once over TCP's loopback. Prints medians of GB/s each way over the
rounds, and their ratio; and the same of the best rounds, which is what counts on a machine where others work too.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MPIRUN = ["mpirun", "-n", "2", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none",
          "--mca", "mpi_yield_when_idle", "1"]  # as the transport does, for machines where others work too
WAYS = {
    "shared memory": ({}, []),
    "TCP": ({"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"},
            ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]),
}


def rates(command, environment):
    output = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if output.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{output.stderr}")
    return {int(size): float(rate) for size, rate in (line.split() for line in output.stdout.splitlines())}


def compare(build, way, rounds):
    environment, flags = WAYS[way]
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(rates([sys.executable, ROOT / "tests/ucx/start_ranks.py", "2", build / "tests/ucx/ucx_bandwidth"],
                          environment))
        theirs.append(rates([*MPIRUN, *flags, build / "tests/ucx/mpi_bandwidth"], {}))
    print(f"{way:15} {'KiB':>8} {'ucx':>8} {'Open MPI':>9} {'ratio':>7}   best {'ucx':>8} {'Open MPI':>9} {'ratio':>7}"
          "   GB/s each way")
    for size in ours[0]:
        a, b = (statistics.median(run[size] for run in runs) for runs in (ours, theirs))
        c, d = (max(run[size] for run in runs) for runs in (ours, theirs))
        print(f"{'':15} {size >> 10:8} {a / 1e9:8.2f} {b / 1e9:9.2f} {a / b:7.2f}        {c / 1e9:8.2f} {d / 1e9:9.2f} "
              f"{c / d:7.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="UCX transport against Open MPI")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    for way in WAYS:
        compare(args.build.resolve(), way, args.rounds)


if __name__ == "__main__":
    main()
