#!/usr/bin/env python3
"""Times builds of ringattn beside each other on a GPU, in short bursts that take turns, to see differences of a
fraction of a percent although clocks follow load and temperature.

    PYTHONPATH=python bench/versions_cuda.py before=FOLDER after=FOLDER ... [--rounds 12] [--burst 8] [--pause 8] \
        [--only REGEX] [--passes forward,backward]

A folder holds libringattn.so and libringattn_cuda.so of a build, or is its src/. The folder "cudnn" stands for torch's
cuDNN backend, which does the dense cases alone. Each build has a process of its own, which keeps its tensors and plans;
calls of a burst (`--burst` milliseconds) follow one another without a wait. Outputs are bf16. A line has the median of
a build's bursts, in microseconds a call, and the median of its ratios to the first build's burst in the same round.
Long bursts run at the clock that the card's power allows, so that times follow the energy of the work; short ones with
long pauses between them (`--burst 1 --pause 20`) run at the highest.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

DOCUMENTS = [0, 2205, 3351, 6119, 9476, 11477, 13994, 16384]

# name: batch, tokens, heads, heads of keys, dim, what attention is told
CASES = {
    "full": (1, 16384, 16, 16, 128, {}),
    "causal": (1, 16384, 16, 16, 128, {"causal": True}),
    "window of 4096": (1, 16384, 16, 16, 128, {"causal": True, "window": [4096, 0]}),
    "7 documents": (1, 16384, 16, 16, 128, {"causal": True, "cu_seqlens": DOCUMENTS}),
    "dilated": (1, 16384, 16, 16, 128, {"dilated": [[2048, 1], [8192, 4], [16384, 16]]}),
    "dilated, causal": (1, 16384, 16, 16, 128, {"causal": True, "dilated": [[2048, 1], [8192, 4], [16384, 16]]}),
    "4096, full": (1, 4096, 16, 16, 128, {}),
    "4096, causal": (1, 4096, 16, 16, 128, {"causal": True}),
    "4 x 2048, causal": (4, 2048, 16, 16, 128, {"causal": True}),
    "8 x 1024, causal": (8, 1024, 16, 16, 128, {"causal": True}),
    "8192, full": (1, 8192, 16, 16, 128, {}),
    "8192, causal": (1, 8192, 16, 16, 128, {"causal": True}),
    "16:4 heads, causal": (1, 16384, 16, 4, 128, {"causal": True}),
    "D = 64, full": (1, 16384, 32, 32, 64, {}),
    "D = 64, causal": (1, 16384, 32, 32, 64, {"causal": True}),
    "D = 96, causal": (1, 16384, 16, 16, 96, {"causal": True}),
    "D = 256, causal": (1, 16384, 8, 8, 256, {"causal": True}),
    "65536, causal": (1, 65536, 16, 16, 128, {"causal": True}),
}
PASSES = ("forward", "backward")


# ---- a build's process -----------------------------------------------------------------------------------------------

def passes_of(case, attend):
    """Functions that make the passes of a case once."""
    import torch
    batch, tokens, heads, kv_heads, dim, told = case
    torch.manual_seed(1)

    def rows(count):
        return torch.randn(batch, tokens, count, dim, device="cuda").bfloat16().requires_grad_()

    q, k, v, grad = rows(heads), rows(kv_heads), rows(kv_heads), rows(heads).detach()
    out = attend(q, k, v, told)

    def forward():
        with torch.no_grad():
            attend(q, k, v, told)

    return {"forward": forward, "backward": lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)}


def attend_by_ringattn():
    import ringattn.torch as ringattn
    ctx = ringattn.init()
    return lambda q, k, v, told: ringattn.attention(q, k, v, ctx=ctx, **told)


def attend_by_cudnn():
    from torch.backends import cuda
    from torch.nn.functional import scaled_dot_product_attention
    # For good: a context for each call would take the host longer than short calls take the GPU.
    for enable, wanted in ((cuda.enable_cudnn_sdp, True), (cuda.enable_flash_sdp, False),
                           (cuda.enable_mem_efficient_sdp, False), (cuda.enable_math_sdp, False)):
        enable(wanted)

    def attend(q, k, v, told):
        if set(told) - {"causal"}:
            raise ValueError("not a pattern of cuDNN's backend")
        return scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal="causal" in told,
                                            enable_gqa=q.shape[2] != k.shape[2]).transpose(1, 2)

    return attend


def burst(run, count):
    """Seconds of each of `count` calls that follow one another."""
    import torch
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / count


def serve(kind):
    """Answers each line of standard input, [case's name] or [pass, calls of a burst], with a line."""
    attend = attend_by_cudnn() if kind == "cudnn" else attend_by_ringattn()
    runs = {}
    for line in sys.stdin:
        asked = json.loads(line)
        answer = None
        try:
            if len(asked) == 1:
                runs.clear()
                runs.update(passes_of(CASES[asked[0]], attend))
                for run in runs.values():
                    burst(run, 3)
                answer = {name: burst(run, 3) for name, run in runs.items()}
            else:
                answer = burst(runs[asked[0]], asked[1])
        except ValueError:  # this build does not do it
            pass
        print(json.dumps(answer), flush=True)


# ---- all builds ------------------------------------------------------------------------------------------------------

class Build:
    def __init__(self, name, folder):
        self.name = name
        environment = dict(os.environ, RINGATTN_LIBRARY=folder)
        kind = "cudnn" if folder == "cudnn" else "ringattn"
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", kind], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, *what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def time_case(name, builds, args):
    """Prints a case's lines."""
    seconds = {build.name: build.ask(name) for build in builds}
    builds = [build for build in builds if seconds[build.name]]
    for which in args.passes.split(","):
        calls = {build.name: max(1, round(args.burst / 1000 / seconds[build.name][which])) for build in builds}
        seen = {build.name: [] for build in builds}
        for i in range(args.rounds):
            first_in_turn = i % len(builds)
            for build in builds[first_in_turn:] + builds[:first_in_turn]:
                seen[build.name].append(build.ask(which, calls[build.name]))
                time.sleep((args.burst if args.pause is None else args.pause) / 1000)
        first = seen[builds[0].name]
        print(f"{name:20s}{which:9s}" + "".join(
            f"  {build.name} {statistics.median(seen[build.name]) * 1e6:8.1f} "
            f"({statistics.median(a / b for a, b in zip(seen[build.name], first)):.4f})"
            for build in builds), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="*", help="name=folder; the first is what others are compared with")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--burst", type=float, default=8, help="milliseconds of calls")
    parser.add_argument("--pause", type=float, help="milliseconds behind each burst; as long as a burst if not given")
    parser.add_argument("--only", default="", help="cases whose names match this")
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve)
    builds = [Build(*given.split("=", 1)) for given in args.builds]
    for name in CASES:
        if re.search(args.only, name):
            time_case(name, builds, args)


if __name__ == "__main__":
    main()
