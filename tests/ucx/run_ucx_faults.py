#!/usr/bin/env python3
"""Breaks jobs of ucx_fault.c in the ways that a cluster does, and checks how they end.

    run_ucx_faults.py PROGRAM [--processes 3] [--timeout 2] [--trials 1] [--only kill,stop,...]
                      [--transports default,tcp]

However the last rank fails, every other must be gone within the deadline plus one second and must have printed an error
that names it. One that is killed must be named long before the deadline: the connection, or the kernel, says so.
Strangers at the ports of a job that runs must not change what it does.
"""
import argparse
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77
STARTUP_SECONDS = 30
KILLED_SECONDS = 1.5  # instead of the deadline


class Failure(Exception):
    pass


class Job:
    """The ranks of one job, and what they print as it comes."""

    def __init__(self, args, mode, transports, ranks=None, environment=None):
        self.folder = tempfile.TemporaryDirectory(prefix="ringattn-faults-")
        self.args, self.mode, self.transports = args, mode, transports
        self.environment = environment
        self.processes, self.readers, self.lines = {}, {}, []
        for rank in range(args.processes) if ranks is None else ranks:
            self.start(rank)

    def start(self, rank):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(self.args.processes), UCX_NET_DEVICES="lo",
                           OMP_WAIT_POLICY="passive")
        if self.transports != "default":
            environment["UCX_TLS"] = self.transports
        environment.update(self.environment or {"RINGATTN_TEST_FOLDER": self.folder.name})
        process = subprocess.Popen([self.args.program, str(self.args.timeout), self.mode], env=environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.processes[rank] = process
        reader = threading.Thread(target=self.read, args=(process,), daemon=True)
        reader.start()
        self.readers[rank] = reader

    def read(self, process):
        for line in process.stdout:
            self.lines.append(line)  # readers run at the same time: this loses none

    @property
    def text(self):
        return "".join(self.lines)

    def wait_for_ranks(self):
        """Until all have met."""
        self.wait_for("has pid", range(self.args.processes))

    def wait_for_begin(self, ranks):
        """Until these look for the others: the clock of their deadline runs from there."""
        self.wait_for("begins", ranks)

    def wait_for(self, what, ranks):
        end = time.monotonic() + STARTUP_SECONDS
        while waiting := [rank for rank in ranks if f"rank {rank} {what}" not in self.text]:
            statuses = [self.processes[rank].poll() for rank in waiting]
            if SKIPPED in statuses:
                print(self.text)
                sys.exit(SKIPPED)
            if time.monotonic() > end or any(statuses):
                raise Failure(f"the ranks did not start:\n{self.text}")
            time.sleep(0.01)

    def time_to_end(self, ranks, seconds):
        """How long it takes for these to be gone, which must be less than that."""
        start = time.monotonic()
        while any(is_alive(self.processes[rank].pid) for rank in ranks):
            if time.monotonic() > start + seconds:
                left = [rank for rank in ranks if is_alive(self.processes[rank].pid)]
                raise Failure(f"ranks {left} were still there after {seconds:.1f} s:\n{self.text}")
            time.sleep(0.005)
        return time.monotonic() - start

    def statuses(self):
        """Waits for all that still run."""
        found = {rank: process.wait() for rank, process in self.processes.items()}
        for reader in self.readers.values():
            reader.join()
        return found

    def clear_away(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
        self.statuses()
        self.folder.cleanup()


def is_alive(pid):
    """A process that has ended, whether or not anybody has waited for it, is not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def check_sentences(job, ranks, pattern):
    """What each of these ranks, which are gone, must have said."""
    for rank in ranks:
        job.readers[rank].join()  # what it printed last may be on its way
        sentence = re.search(rf"^rank {rank} failed: (.*)$", job.text, re.MULTILINE)
        if not sentence:
            raise Failure(f"rank {rank} ended with {job.processes[rank].wait()} and printed no error:\n{job.text}")
        if not re.search(pattern, sentence[1]):
            raise Failure(f"rank {rank}'s error is not as it should be: {sentence[1]}")


def break_rank(args, transports, how, seconds):
    """Sends the last rank a signal in the middle of its work; returns how long the others took to end from there."""
    job = Job(args, "loop", transports)
    last = args.processes - 1
    try:
        job.wait_for_ranks()
        time.sleep(0.2 + 0.2 * random.random())
        os.kill(job.processes[last].pid, how)
        taken = job.time_to_end(range(last), seconds)
        check_sentences(job, range(last), rf"rank {last}\b")
        if any(job.processes[rank].wait() != 1 for rank in range(last)):
            raise Failure(f"a survivor crashed:\n{job.text}")
        return taken
    finally:
        job.clear_away()


def kill(args, transports):
    return break_rank(args, transports, signal.SIGKILL, KILLED_SECONDS)


def stop(args, transports):
    return break_rank(args, transports, signal.SIGSTOP, args.timeout + 1)


def mismatch(args, transports):
    """The last rank has another problem: everyone says which field of whose."""
    job = Job(args, "mismatch", transports)
    try:
        job.wait_for_begin(range(args.processes))
        seconds = job.time_to_end(range(args.processes), args.timeout + 1)
        check_sentences(job, range(args.processes), r"rank \d+.*causal|causal.*rank \d+")
        return seconds
    finally:
        job.clear_away()


def late(args, transports):
    """The last rank comes after the others have given up: they name it, and it does not hang either."""
    last = args.processes - 1
    job = Job(args, "loop", transports, ranks=range(last))
    try:
        job.wait_for_begin(range(last))
        seconds = job.time_to_end(range(last), args.timeout + 1)
        check_sentences(job, range(last), rf"rank {last}\b")
        job.start(last)
        job.wait_for_begin([last])
        job.time_to_end([last], args.timeout + 1)
        check_sentences(job, [last], "rank 0")
        return seconds
    finally:
        job.clear_away()


# ---- strangers -------------------------------------------------------------------------------------------------------


def listening_ports(pid):
    """The TCP ports that a process listens at on 127.0.0.1."""
    sockets = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    ports = set()
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                ports.add(int(fields[1].split(":")[1], 16))
    return ports


def pester(port, generator, held):
    """Connects and sends nothing or rubbish, but for what begins as UCX begins: see docs/ucx.md."""
    try:
        stranger = socket.create_connection(("127.0.0.1", port), timeout=1)
    except OSError:
        return
    if generator.randrange(4) > 0:
        try:
            stranger.sendall(generator.randbytes(generator.randrange(1, 5000)))
        except OSError:
            pass
    held.append(stranger)
    if len(held) > 50:
        held.pop(generator.randrange(len(held))).close()


def strangers(args, transports):
    """At the ports of a job that computes; there are none where ranks share memory."""
    job = Job(args, "3", transports)
    generator, held, thrown = random.Random(args.seed), [], 0
    try:
        job.wait_for_ranks()
        ports = [port for process in job.processes.values() for port in listening_ports(process.pid)]
        if bool(ports) != ("tcp" in transports):
            raise Failure(f"the ranks listen at {ports}")
        start = time.monotonic()
        while ports and time.monotonic() < start + 2:
            pester(generator.choice(ports), generator, held)
            thrown += 1
            time.sleep(0.005)
        job.time_to_end(range(args.processes), 3 + args.timeout)
        statuses = job.statuses()
        if any(statuses.values()):
            raise Failure(f"the ranks ended with {statuses}:\n{job.text}")
        print(f"      {thrown} strangers at {len(ports)} ports; {' '.join(re.findall(r'[0-9]+ passes', job.text))}")
        return time.monotonic() - start
    finally:
        for stranger in held:
            stranger.close()
        job.clear_away()


def environment(args, transports):
    """Ranks that meet as torchrun starts them, with strangers at the port until the last has come."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RINGATTN_JOB_KEY": "a key for this job"}
    last = args.processes - 1
    job = Job(args, "1", transports, ranks=range(last), environment=variables)
    generator, held = random.Random(args.seed), []
    start = time.monotonic()
    try:
        while time.monotonic() < start + args.timeout / 2:
            pester(port, generator, held)
            time.sleep(0.002)
        job.start(last)
        job.wait_for_ranks()
        statuses = job.statuses()
        if any(statuses.values()):
            raise Failure(f"the ranks ended with {statuses}:\n{job.text}")
        return time.monotonic() - start
    finally:
        for stranger in held:
            stranger.close()
        job.clear_away()


FAULTS = {f.__name__: f for f in (kill, stop, mismatch, late, strangers, environment)}


def main():
    parser = argparse.ArgumentParser(description="breaks UCX jobs and checks how they end")
    parser.add_argument("program")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=2)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--only", default=",".join(FAULTS))
    parser.add_argument("--transports", default="default,tcp")
    args = parser.parse_args()
    failed = 0
    for transports in args.transports.split(","):
        for name in args.only.split(","):
            taken = []
            for args.seed in range(1, 1 + args.trials):
                try:
                    taken.append(FAULTS[name](args, transports))
                except Failure as failure:
                    failed += 1
                    print(f"FAIL  {name}, {transports}: {failure}", flush=True)
            if taken:
                print(f"ok    {name}, {transports}: {len(taken)} of {args.trials}, gone after {max(taken):.2f} s",
                      flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
