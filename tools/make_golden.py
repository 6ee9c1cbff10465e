#!/usr/bin/env python3
"""Makes the golden files of the tests from the oracle, the definition of what ringattn computes.

    tools/make_golden.py --oracle PATH/oracle.py --out tests/golden

Each case is a folder of C-order little-endian f8 arrays: q, k, v, dout, o, lse, dq, dk, dv. cases.txt has one line per
case: its name, then its flags in the spelling of the command line. Needs numpy.
"""
import argparse
import importlib.util
import pathlib

import numpy as np

# name: ((batch, seq_q, seq_k, heads, kv_heads, dim, dim_v), what differs from full attention)
CASES = {
    "full": ((2, 13, 13, 3, 3, 8, 8), {}),
    "causal": ((1, 33, 33, 2, 2, 10, 10), dict(causal=True)),
    "gqa-8-to-1": ((1, 19, 19, 8, 1, 6, 6), dict(causal=True)),
    "five-heads": ((1, 21, 21, 5, 5, 7, 3), dict(window=(4, 2))),
    "more-keys": ((1, 9, 27, 2, 1, 8, 12), dict(causal=True)),
    "masked-rows": ((1, 27, 9, 2, 2, 8, 8), dict(causal=True)),
    "window-causal": ((1, 40, 40, 2, 1, 8, 8), dict(causal=True, window=(7, 0))),
    "window-one-sided": ((1, 24, 31, 2, 2, 8, 8), dict(window=(-1, 3))),
    "documents": ((1, 30, 30, 2, 2, 8, 8), dict(causal=True, cu_q=[0, 1, 12, 13, 29, 30])),
    "documents-cross": ((1, 22, 26, 4, 2, 5, 9), dict(causal=True, window=(5, -1), cu_q=[0, 9, 10, 22],
                                                      cu_k=[0, 4, 11, 26])),
    "scale": ((2, 11, 14, 2, 2, 1, 4), dict(scale=0.37)),
    "scale-zero": ((1, 12, 12, 1, 1, 4, 4), dict(scale=0.0, causal=True)),
    "dilated-lse": ((1, 26, 26, 4, 2, 4, 4), dict(causal=True, dilated=[(4, 1), (8, 2), (26, 3)])),
    "dilated-groups-mean": ((1, 21, 21, 5, 1, 4, 3), dict(dilated=[(4, 1), (8, 2)], dilated_heads="groups",
                                                          dilated_offset="group", dilated_combine="mean")),
    "dilated-all-mean": ((1, 20, 24, 2, 2, 4, 4), dict(causal=True, dilated=[(6, 2), (10, 3), (2, 1)],
                                                       dilated_combine="mean")),
    "dilated-block": ((1, 23, 23, 4, 4, 4, 4), dict(dilated=[(6, 4), (5, 7)], dilated_offset="block", window=(9, 1),
                                                    cu_q=[0, 7, 23])),
}
NAMES = ("o", "lse", "dq", "dk", "dv")


def load_oracle(path):
    spec = importlib.util.spec_from_file_location("oracle", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flags(pattern):
    """The pattern as the command line spells it."""
    words = ["--causal"] if pattern.get("causal") else []
    if "window" in pattern:
        words += ["--window", "%d,%d" % pattern["window"]]
    if "cu_q" in pattern:
        words += ["--cu-seqlens", ",".join(map(str, pattern["cu_q"]))]
    if "cu_k" in pattern:
        words += ["--cu-seqlens-k", ",".join(map(str, pattern["cu_k"]))]
    if "scale" in pattern:
        words += ["--scale", repr(pattern["scale"])]
    if "dilated" in pattern:
        words += ["--dilated", ",".join("%d:%d" % branch for branch in pattern["dilated"])]
    for key in ("dilated_heads", "dilated_offset", "dilated_combine"):
        if key in pattern:
            words += ["--" + key.replace("_", "-"), pattern[key]]
    return words


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", required=True, help="oracle.py")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    args = parser.parse_args()
    oracle = load_oracle(args.oracle)
    rng = np.random.default_rng(2024)
    lines = []
    for name, ((batch, sq, sk, heads, kv_heads, dim, dim_v), pattern) in CASES.items():
        arrays = {"q": rng.standard_normal((batch, sq, heads, dim)),
                  "k": rng.standard_normal((batch, sk, kv_heads, dim)),
                  "v": rng.standard_normal((batch, sk, kv_heads, dim_v)),
                  "dout": rng.standard_normal((batch, sq, heads, dim_v))}
        results = oracle.attend(arrays["q"], arrays["k"], arrays["v"], arrays["dout"], **pattern)
        arrays.update(zip(NAMES, results))
        folder = args.out / name
        folder.mkdir(parents=True, exist_ok=True)
        for key, array in arrays.items():
            np.save(folder / (key + ".npy"), np.ascontiguousarray(array, dtype="<f8"))
        lines.append(" ".join([name] + flags(pattern)))
    (args.out / "cases.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
