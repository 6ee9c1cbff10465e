#!/usr/bin/env python3
"""Kills and stops a rank of gpu_fault.c, and checks that the others end in time.

    run_gpu_faults.py MPIEXEC PROGRAM [--processes 3] [--timeout 5]

Within the deadline plus two seconds every surviving rank must have printed an error that names itself, and be gone.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time

STARTUP_SECONDS = 90
RUNNING_SECONDS = 2
SLACK_SECONDS = 2


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Job:
    def __init__(self, args):
        environment = dict(os.environ, OMPI_MCA_orte_abort_on_non_zero_status="0", OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                           PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        self.text = ""
        self.process = subprocess.Popen([args.mpiexec, "-n", str(args.processes), args.program, str(args.timeout)],
                                        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line

    def pids(self):
        return {int(rank): int(pid) for rank, pid in re.findall(r"rank (\d+) has pid (\d+)", self.text)}

    def clear_away(self):
        for pid in self.pids().values():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()


def break_one(args, name, sign):
    """Returns an error, None, or "skipped"."""
    job = Job(args)
    try:
        end = time.monotonic() + STARTUP_SECONDS
        while len(job.pids()) < args.processes:
            if "no GPU, skipped" in job.text:
                return "skipped"
            if time.monotonic() > end or job.process.poll() is not None:
                return f"the ranks did not start:\n{job.text}"
            time.sleep(0.01)
        time.sleep(RUNNING_SECONDS)
        pids = job.pids()
        victim = args.processes - 1
        os.kill(pids[victim], sign)
        start = time.monotonic()
        others = [pid for rank, pid in pids.items() if rank != victim]
        while any(map(is_alive, others)):
            if time.monotonic() > start + args.timeout + SLACK_SECONDS:
                return f"a rank outlived its deadline:\n{job.text}"
            time.sleep(0.01)
        taken = time.monotonic() - start
        if sign == signal.SIGSTOP:
            os.kill(pids[victim], signal.SIGKILL)
        time.sleep(0.5)
        # mpirun may end the others itself when one is killed; then they say nothing
        silent = [rank for rank in pids if rank != victim and f"rank {rank} failed: " not in job.text]
        print(f"{name}: gone after {taken:.1f} s (deadline {args.timeout} s), silent: {silent or 'none'}")
        print("  " + "\n  ".join(re.findall(r"rank \d+ failed: .*", job.text)))
        return f"ranks {silent} said nothing:\n{job.text}" if silent and sign == signal.SIGSTOP else None
    finally:
        job.clear_away()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mpiexec")
    parser.add_argument("program")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=5)
    args = parser.parse_args()
    for name, sign in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        wrong = break_one(args, name, sign)
        if wrong == "skipped":
            print("no GPU, skipped")
            return
        if wrong:
            sys.exit(f"{name}: {wrong}")


if __name__ == "__main__":
    main()
