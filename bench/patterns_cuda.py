#!/usr/bin/env python3
"""Times ringattn's patterns on a GPU against full attention, and rings of ranks on one GPU against one rank.

    bench/patterns_cuda.py build/ringattn [--rounds 3] [--repeat 21] [--only REGEX] [--json FILE]

For machines with a GPU; no part of the tests. Every row is timed once in each round, and what it is a fraction of right
before and right behind it, since GPUs change their clocks with their load and temperature: a round's ratio is to the
mean of the two. A figure is the median of `ringattn bench`, from the call until the device is done, and a row has the
medians of its rounds. Rates are of visible pairs. What is left in the ratios is that patterns take different power: at
a clock that the card can hold for long, where its owner fixes one, they are those of the work alone.
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


PASSES = ("forward", "backward")


def round_of(args, rows):
    """Of each row the rates, and the ratios to what it is a fraction of. Rows of one kind share what is timed between
    them."""
    arguments = {name: given for name, _, given in ROWS}
    found, before = {}, {}
    for name, whole, given in rows:
        if whole not in before:
            before[whole] = rates(args, arguments[whole])
        if name == whole:
            found[name] = before[whole], dict.fromkeys(PASSES, 1.0)
            continue
        own, behind = rates(args, given), rates(args, arguments[whole])
        found[name] = own, {x: 2 * own[x] / (before[whole][x] + behind[x]) for x in PASSES}
        before[whole] = behind
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", help="the ringattn command")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=21)
    parser.add_argument("--only", default="", help="rows whose names have this in them")
    parser.add_argument("--json", help="file to write all rates and ratios to")
    args = parser.parse_args()
    rows = [row for row in ROWS if re.search(args.only, row[0])]
    seen = [round_of(args, rows) for _ in range(args.rounds)]
    medians = {}
    for name, _, _ in rows:
        medians[name] = {x: {"rate": statistics.median(found[name][0][x] for found in seen),
                             "ratio": statistics.median(found[name][1][x] for found in seen)} for x in PASSES}
        print(f"{name:28s}" + "".join(f"  {x} {median['rate']:6.1f} TFLOP/s ({median['ratio']:.3f})"
                                      for x, median in medians[name].items()), flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(medians, file, indent=1)


if __name__ == "__main__":
    main()
