#!/usr/bin/env python3
"""Kills and stops a rank of gpu_fault.c, and checks that the others end in time.

    run_gpu_faults.py MPIEXEC PROGRAM [--processes 3] [--timeout 5]

Within the deadline plus two seconds every surviving rank must have printed the library's error, which names the rank and
where it was, and be gone. An mpirun that ends the survivors of a killed rank itself leaves them no time to speak: there
they must only be gone.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time

# What the library says, behind the program's "rank R failed: ".
PASS_ERROR = (r"rank {rank}, (step \d+ of the \w+ pass|waiting for the device)"
              r"(, (waiting for|sending to) rank \d+)?: .+")
STARTUP_SECONDS = 90
RUNNING_SECONDS = 2
SLACK_SECONDS = 2


def lets_survivors_go_on(mpiexec):
    """Open MPI can; MPICH's mpiexec ends the survivors of a killed process one way or another."""
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    return "Open MPI" in version


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wrong_sentence(text, rank):
    """What is wrong with a rank's error; None: nothing."""
    sentence = re.search(rf"^rank {rank} failed: (.*)$", text, re.MULTILINE)
    if not sentence:
        return f"rank {rank} printed no error"
    if not re.match(PASS_ERROR.format(rank=rank), sentence[1]):
        return f"rank {rank}'s error is not as it should be: {sentence[1]}"
    return None


class Job:
    def __init__(self, args):
        # mpirun must not end the survivors itself
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


def break_one(args, name, sign, survive):
    """Returns an error, None, or "skipped". survive: the others live long enough to say what happened."""
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
        print(f"{name}: gone after {taken:.1f} s (deadline {args.timeout} s)")
        print("  " + "\n  ".join(re.findall(r"rank \d+ failed: .*", job.text)))
        wrong = [wrong_sentence(job.text, rank) for rank in sorted(pids) if rank != victim and survive]
        wrong = [text for text in wrong if text]
        return "\n".join(wrong + [job.text]) if wrong else None
    finally:
        job.clear_away()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mpiexec")
    parser.add_argument("program")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=5)
    args = parser.parse_args()
    go_on = lets_survivors_go_on(args.mpiexec)
    for name, sign, survive in (("killed", signal.SIGKILL, go_on), ("stopped", signal.SIGSTOP, True)):
        wrong = break_one(args, name, sign, survive)
        if wrong == "skipped":
            print("no GPU, skipped")
            return
        if wrong:
            sys.exit(f"{name}: {wrong}")


if __name__ == "__main__":
    main()
