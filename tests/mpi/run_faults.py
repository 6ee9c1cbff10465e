#!/usr/bin/env python3
"""Breaks jobs of fault.c in the ways that a cluster does, and checks how they end.

However the last rank fails (killed, stopped, given another problem), every rank's process must be gone within the
deadline plus one second, and every surviving rank must have printed an error that names itself, the peer and the step.
mpirun itself may take a little longer to tidy up.

    run_faults.py MPIEXEC PROGRAM [--processes 3] [--timeout 2]
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time

PASS_ERROR = r"rank {rank}, step \d+ of the \w+ pass, (waiting for|sending to) rank \d+: .+"
MISMATCH_ERROR = r"rank \d+.*causal|causal.*rank \d+"
STARTUP_SECONDS = 30
TIDY_SECONDS = 5
RUNNING_SECONDS = 0.4  # before a rank is broken: some passes of a few milliseconds


class Job:
    """mpirun, its output as it comes, and the pids of the ranks."""

    def __init__(self, args, mode, survive):
        command = [args.mpiexec, "-n", str(args.processes)]
        environment = dict(os.environ)
        if survive:  # mpirun must not end the survivors itself
            environment["OMPI_MCA_orte_abort_on_non_zero_status"] = "0"
        self.text = ""
        self.process = subprocess.Popen(command + [args.program, str(args.timeout), mode], env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line

    def pids(self):
        return {int(rank): int(pid) for rank, pid in re.findall(r"rank (\d+) has pid (\d+)", self.text)}

    def wait_for_ranks(self, processes):
        end = time.monotonic() + STARTUP_SECONDS
        while len(self.pids()) < processes:
            if time.monotonic() > end or self.process.poll() is not None:
                raise Failure(f"the ranks did not start:\n{self.text}")
            time.sleep(0.01)

    def time_to_end(self, seconds):
        """How long it takes for every rank to be gone, which must be less than that; then waits for mpirun."""
        start = time.monotonic()
        while any(is_alive(pid) for pid in self.pids().values()):
            if time.monotonic() > start + seconds:
                left = [rank for rank, pid in self.pids().items() if is_alive(pid)]
                raise Failure(f"ranks {left} were still there after {seconds:.1f} s:\n{self.text}")
            time.sleep(0.01)
        taken = time.monotonic() - start
        try:
            self.process.wait(TIDY_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failure(f"mpirun outlived its ranks by more than {TIDY_SECONDS} s:\n{self.text}") from None
        self.reader.join()
        return taken

    def clear_away(self):
        if self.process.poll() is None:
            self.process.kill()
        for pid in self.pids().values():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


class Failure(Exception):
    pass


def lets_survivors_go_on(mpiexec):
    """Open MPI can; MPICH's mpiexec, or UCX beneath it, ends the survivors of a killed process one way or another."""
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    return "Open MPI" in version


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def check_sentences(job, ranks, pattern):
    for rank in ranks:
        sentence = re.search(rf"^rank {rank} failed: (.*)$", job.text, re.MULTILINE)
        if not sentence:
            raise Failure(f"rank {rank} printed no error:\n{job.text}")
        if not re.search(pattern.format(rank=rank), sentence[1]):
            raise Failure(f"rank {rank}'s error is not as it should be: {sentence[1]}")


def break_rank(args, how, survive=True):
    """Sends the last rank a signal in the middle of its work; returns how long the ranks took to end from there."""
    job = Job(args, "loop", survive)
    try:
        job.wait_for_ranks(args.processes)
        time.sleep(RUNNING_SECONDS)
        os.kill(job.pids()[args.processes - 1], how)
        seconds = job.time_to_end(args.timeout + 1)
        if survive:
            check_sentences(job, range(args.processes - 1), PASS_ERROR)
        return seconds
    finally:
        job.clear_away()


def kill_rank(args):
    return break_rank(args, signal.SIGKILL)


def kill_rank_by_default(args):
    """As mpirun is set by default it ends the survivors itself, at once."""
    return break_rank(args, signal.SIGKILL, survive=False)


def stop_rank(args):
    return break_rank(args, signal.SIGSTOP)


def give_rank_another_problem(args):
    job = Job(args, "mismatch", survive=False)
    try:
        job.wait_for_ranks(args.processes)
        seconds = job.time_to_end(args.timeout + 1)
        check_sentences(job, range(args.processes), MISMATCH_ERROR)
        return seconds
    finally:
        job.clear_away()


def main():
    parser = argparse.ArgumentParser(description="breaks MPI jobs and checks how they end")
    parser.add_argument("mpiexec")
    parser.add_argument("program")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=2)
    args = parser.parse_args()
    failed = 0
    faults = [kill_rank_by_default, stop_rank, give_rank_another_problem]
    if lets_survivors_go_on(args.mpiexec):
        faults.append(kill_rank)
    for fault in faults:
        try:
            print(f"ok    {fault.__name__}: all gone after {fault(args):.2f} s", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAIL  {fault.__name__}: {failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
