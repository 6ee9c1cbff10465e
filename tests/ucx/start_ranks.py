#!/usr/bin/env python3
"""Starts ranks as processes, without MPI, and waits for them.

    start_ranks.py RANKS PROGRAM [ARGUMENT...]

Each gets RANK and WORLD_SIZE, and RINGATTN_TEST_FOLDER, a folder of its own for the job. When one fails the others have a
second to end, and are killed. The exit status is that of the first that failed; 77 (skipped) when all of them skipped.
"""
import os
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


def wait(processes):
    """The exit statuses; -9 for those that had to be killed after another failed."""
    deadline = None
    while any(p.poll() is None for p in processes):
        if deadline is None and any(p.poll() not in (None, 0) for p in processes):
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            for p in processes:
                if p.poll() is None:
                    p.kill()
        time.sleep(0.005)
    return [p.returncode for p in processes]


def main():
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="ringattn-ranks-") as folder:
        statuses = wait(start(ranks, command, folder))
    if all(status == SKIPPED for status in statuses):
        return SKIPPED
    failed = [(rank, status) for rank, status in enumerate(statuses) if status]
    for rank, status in failed:
        print(f"start_ranks: rank {rank} ended with {status}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
