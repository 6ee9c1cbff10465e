#!/usr/bin/env python3
"""Starts ranks as processes, without MPI, and waits for them.

    start_ranks.py [--killed] RANKS PROGRAM [ARGUMENT...]

Each gets RANK and WORLD_SIZE, and RINGATTN_TEST_FOLDER, a folder of its own for the job. When one fails the others
have a second to end, and are killed. The exit status is 1 then, and 77 (skipped) when all of them skipped. With
--killed the last rank has to be killed by a signal, its own, and the others have to go on.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
GRACE_SECONDS = 1


def start(ranks, command, folder):
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), RINGATTN_TEST_FOLDER=folder)
        processes.append(subprocess.Popen(command, env=environment))
    return processes


def wait(processes, expected):
    """The exit statuses; -9 for those that had to be killed after another failed."""
    deadline = None
    while any(p.poll() is None for p in processes):
        if deadline is None and any(p.poll() not in (None, 0, want) for p, want in zip(processes, expected)):
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            for p in processes:
                if p.poll() is None:
                    p.kill()
        time.sleep(0.005)
    return [p.returncode for p in processes]


def main():
    killed = sys.argv[1] == "--killed"
    ranks, command = int(sys.argv[1 + killed]), sys.argv[2 + killed:]
    expected = [0] * (ranks - killed) + [-signal.SIGKILL] * killed
    with tempfile.TemporaryDirectory(prefix="ringattn-ranks-") as folder:
        statuses = wait(start(ranks, command, folder), expected)
    if all(status == SKIPPED for status in statuses):
        return SKIPPED
    failed = [rank for rank in range(ranks) if statuses[rank] != expected[rank]]
    for rank in failed:
        print(f"start_ranks: rank {rank} ended with {statuses[rank]}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
