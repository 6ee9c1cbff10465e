#!/usr/bin/env python3
"""Times ringattn's patterns on a GPU against full attention, and rings of ranks on one GPU against one rank.

    bench/patterns_cuda.py build/ringattn [--rounds 3] [--repeat 21] [--only REGEX] [--json FILE]

For machines with a GPU; no part of the tests. Every row is timed once in each round, so that all of them see the same
machine, and has the median of its rounds; a round's figure is the median of `ringattn bench`, from the call until the
device is done. Rates are of visible pairs. GPUs lower their clocks under load: where it is allowed, fix them at what
the power permits for long (H200: `nvidia-smi -lgc 1305,1305`), or ratios are those of powers too.
"""
import argparse
import itertools
import json
import re
import statistics
import subprocess

HEADS, DIM = 16, 128
DOCUMENTS = [2205, 1146, 2768, 3357, 2001, 2517, 2390]
STARTS = ",".join(map(str, itertools.accumulate(DOCUMENTS, initial=0)))

# name, what it is a fraction of, the command's arguments
ROWS = [("full", "full", ["--seq", "16384"]),
        ("causal", "full", ["--seq", "16384", "--causal"]),
        ("window of 4096, causal", "full", ["--seq", "16384", "--causal", "--window", "4096,0"]),
        ("7 documents, causal", "full", ["--seq", "16384", "--causal", "--cu-seqlens", STARTS]),
        ("dilated", "full", ["--seq", "16384", "--dilated", "2048:1,8192:4,16384:16"]),
        ("striped on 4 ranks, causal", "full", ["--seq", "16384", "--causal", "--ranks", "4", "--layout", "striped"]),
        ("65536, 1 rank, causal", "65536, 1 rank, causal", ["--seq", "65536", "--causal"])]
ROWS += [(f"65536, {ranks} ranks, causal", "65536, 1 rank, causal",
          ["--seq", "65536", "--causal", "--ranks", str(ranks), "--layout", "zigzag"]) for ranks in (4, 8)]


def rates(args, arguments):
    """TFLOP/s of both passes."""
    command = [args.command, "bench", "--device", "cuda:0", "--dtype", "bf16", "--heads", str(HEADS), "--dim", str(DIM),
               "--backward", "--json", "--repeat", str(args.repeat), *arguments]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {row["pass"]: row["gflops"] / 1000 for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", help="the ringattn command")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=21)
    parser.add_argument("--only", default="", help="rows whose names have this in them")
    parser.add_argument("--json", help="file to write all rates to")
    args = parser.parse_args()
    rows = [row for row in ROWS if re.search(args.only, row[0])]
    seen = [[rates(args, arguments) for _, _, arguments in rows] for _ in range(args.rounds)]
    medians = {row[0]: {which: statistics.median(found[i][which] for found in seen) for which in ("forward", "backward")}
               for i, row in enumerate(rows)}
    for name, whole, _ in rows:
        line = f"{name:28s}"
        for which in ("forward", "backward"):
            rate = medians[name][which]
            line += f"  {which} {rate:6.1f} TFLOP/s"
            line += f" ({rate / medians[whole][which]:.3f})" if whole in medians else ""
        print(line, flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(medians, file, indent=1)


if __name__ == "__main__":
    main()
