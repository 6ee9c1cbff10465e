#!/usr/bin/env python3
"""Breaks jobs over MPI in the ways that a cluster does, and checks how they end.

However a rank fails, every rank's process must be gone within the timeout plus one second, mpirun must not exit with 0,
no partial file may stay, and every surviving rank must have printed an error that names the one that failed. What only
looks like a fault (a rank that is stopped for a moment, one that computes for long) must change nothing, not even a bit.
mpirun itself may take a little longer to tidy up. One thing is beyond a rank's power and counted apart: one that a stopped
process holds inside an MPI call (docs/mpi.md) prints nothing; another rank must have named both as silent.

    run_faults.py MPIEXEC FAULT [--command RINGATTN] [--trials 1] [--processes 2,3,4,5] [--timeout 2] [--slack 1]
                  [--faults kill,stop,...] [--seed N]

Each trial of each fault takes the next number of processes, and a rank and a moment at random. FAULT is built from
fault.c; the faults that end in `_command` break the ringattn command instead. `--slack` is what the clock is allowed
beyond the timeout: the test suite, whose machine may be busy, allows more.
"""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

STARTUP_SECONDS = 60
TIDY_SECONDS = 10
START_SECONDS = 1  # that mpirun needs to start and end processes
ERROR = "ringattn: error: "


class Failure(Exception):
    pass


TO_FILE = 'exec "$@" >>"$0" 2>&1'  # mpirun itself would print lines of several ranks one inside the other


class Job:
    """mpirun, what each rank prints as it comes, and the pids of the ranks."""

    def __init__(self, args, programs, survive=True):
        """programs: one command for each rank."""
        command = [args.mpiexec]
        self.logs = tempfile.TemporaryDirectory()
        for i, program in enumerate(programs):
            command += ([":"] if i else []) + ["-n", "1", "sh", "-c", TO_FILE, self.log(i), *map(str, program)]
        environment = dict(os.environ)
        if survive:  # mpirun must not end the survivors itself
            environment["OMPI_MCA_orte_abort_on_non_zero_status"] = "0"
        self.ranks = len(programs)
        self.of_mpirun = ""
        self.known_pids = {}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.of_mpirun += line

    def log(self, rank):
        return os.path.join(self.logs.name, str(rank))

    @property
    def text(self):
        text = ""
        for rank in range(self.ranks):
            if os.path.exists(self.log(rank)):
                with open(self.log(rank), encoding="utf-8", errors="replace") as file:
                    text += file.read()
        return text + self.of_mpirun

    def wait_until(self, condition, what):
        end = time.monotonic() + STARTUP_SECONDS
        while not condition():
            if time.monotonic() > end or self.process.poll() is not None:
                raise Failure(f"{what} did not come:\n{self.text}")
            time.sleep(0.01)

    def pids(self):
        """By rank: as fault.c prints them, or mpirun's children, which it starts in the order of ranks."""
        printed = {int(rank): int(pid) for rank, pid in re.findall(r"rank (\d+) has pid (\d+)", self.text)}
        if not printed:
            printed = dict(enumerate(children(self.process.pid)))
        if len(printed) == self.ranks:
            self.known_pids = printed
        return self.known_pids

    def wait_for_ranks(self):
        self.wait_until(lambda: len(self.pids()) == self.ranks, "every rank")

    def wait_for_comms(self):
        self.wait_for_ranks()
        self.wait_until(lambda: self.text.count(" has a comm") == self.ranks, "every rank's comm")

    def time_to_end(self, seconds):
        """How long it takes for every rank to be gone, which must be less than that; then waits for mpirun."""
        start = time.monotonic()
        while any(is_alive(pid) for pid in self.known_pids.values()):
            if time.monotonic() > start + seconds:
                left = [rank for rank, pid in self.known_pids.items() if is_alive(pid)]
                raise Failure(f"ranks {left} were still there after {seconds:.1f} s:\n{self.text}")
            time.sleep(0.005)
        taken = time.monotonic() - start
        self.finish()
        return taken

    def finish(self, seconds=TIDY_SECONDS):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"mpirun was still there after {seconds} s:\n{self.text}") from None
        self.reader.join()
        return self.process.returncode

    def clear_away(self):
        if self.process.poll() is None:
            self.process.kill()
        for pid in self.known_pids.values():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.logs.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.clear_away()


def children(parent):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                if int(file.read().rsplit(")", 1)[1].split()[1]) == parent:
                    found.append(int(name))
        except OSError:
            continue
    return sorted(found)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# ---- what must be so at the end ------------------------------------------------------------------------------------


def check_exit(job):
    if job.process.returncode == 0:
        raise Failure(f"mpirun exited with 0:\n{job.text}")


def sentences_of(job):
    return {int(rank): text for rank, text in re.findall(r"^rank (\d+) failed: (.*)$", job.text, re.MULTILINE)}


def held_ranks(job, culprit):
    """Those that printed nothing, and of which another has said that they were silent like the culprit."""
    said = sentences_of(job)

    def is_held(rank):
        return any(all(f"rank {silent} has been silent" in text for silent in (rank, culprit)) for text in said.values())

    return [rank for rank in range(job.ranks) if rank != culprit and rank not in said and is_held(rank)]


def check_named(job, culprit, pattern=r"rank {culprit}\b", among=None):
    """Every rank but the culprit, or every one of `among`, has printed an error that names the culprit."""
    said = sentences_of(job)
    for rank in [rank for rank in range(job.ranks) if rank != culprit] if among is None else among:
        if rank not in said:
            raise Failure(f"rank {rank} printed no error:\n{job.text}")
        if not re.search(pattern.format(rank=rank, culprit=culprit), said[rank]):
            raise Failure(f"rank {rank}'s error does not name rank {culprit} as it should: {said[rank]}")


def check_named_by_command(job, culprit):
    sentences = [line for line in job.text.splitlines() if line.startswith(ERROR)]
    named = [line for line in sentences if re.search(rf"rank {culprit}\b", line)]
    if len(named) < job.ranks - 1:
        raise Failure(f"{len(named)} of {job.ranks - 1} survivors named rank {culprit}:\n{job.text}")


def check_folder(folder, before):
    left = sorted(set(os.listdir(folder)) - before)
    if left:
        raise Failure(f"files stayed: {left}")


# ---- faults of fault.c ----------------------------------------------------------------------------------------------


def fault_job(args, processes, *mode, timeout=None, survive=True):
    program = [args.fault, timeout or args.timeout, *mode]
    return Job(args, [program] * processes, survive)


def signal_rank(args, processes, number, survive=True):
    culprit = args.random.randrange(processes)
    with fault_job(args, processes, "loop", survive=survive) as job:
        job.wait_for_comms()
        time.sleep(args.random.uniform(0, 0.5))
        os.kill(job.pids()[culprit], number)
        seconds = job.time_to_end(args.timeout + args.slack)
        check_exit(job)
        if survive:
            held = held_ranks(job, culprit) if number == signal.SIGSTOP else []
            args.held += len(held)
            check_named(job, culprit, among=set(range(processes)) - {culprit, *held})
            if number == signal.SIGSTOP and f"rank {culprit} has been silent" not in job.text:
                raise Failure(f"nobody said that rank {culprit} was silent:\n{job.text}")
        return seconds


def kill(args, processes):
    return signal_rank(args, processes, signal.SIGKILL)


def kill_by_default(args, processes):
    """As mpirun is set by default it ends the survivors itself, at once."""
    return signal_rank(args, processes, signal.SIGKILL, survive=False)


def stop(args, processes):
    return signal_rank(args, processes, signal.SIGSTOP)


def mismatch(args, processes):
    """The last rank is given another problem, which all ranks find out."""
    with fault_job(args, processes, "mismatch", survive=False) as job:
        job.wait_for_ranks()
        seconds = job.time_to_end(args.timeout + args.slack)
        check_exit(job)
        check_named(job, processes - 1, r"rank \d+.*causal|causal.*rank \d+", among=range(processes))
        return seconds


def memory(args, processes):
    """The last rank gets no memory, somewhere between its comm and its plan."""
    with fault_job(args, processes, "count") as job:
        job.wait_for_ranks()
        job.finish()
        asked = int(re.search(rf"rank {processes - 1} asked for memory (\d+) times", job.text)[1])
    with fault_job(args, processes, "memory", args.random.randrange(asked)) as job:
        job.wait_for_ranks()
        seconds = job.time_to_end(1 + args.slack)  # nobody waits for a deadline
        check_exit(job)
        check_named(job, processes - 1)
        check_named(job, processes - 1, "no memory", among=[processes - 1])
        return seconds


def bits_of(job, processes):
    if job.finish(STARTUP_SECONDS) != 0:
        raise Failure(f"the job failed:\n{job.text}")
    bits = dict(re.findall(r"rank (\d+) has bits (\w+)", job.text))
    if len(bits) != processes:
        raise Failure(f"not every rank has printed its bits:\n{job.text}")
    return bits


def stop_and_go_on(args, processes):
    """A rank is stopped for less than the timeout, twice, and the job gives the same bits as without it."""
    with fault_job(args, processes, "passes", 0) as job:
        wanted = bits_of(job, processes)
    with fault_job(args, processes, "passes", 1 + 2 * args.timeout) as job:
        job.wait_for_comms()
        start = time.monotonic()
        culprit = args.random.randrange(processes)
        for _ in range(2):
            time.sleep(args.random.uniform(0, 0.3))
            os.kill(job.pids()[culprit], signal.SIGSTOP)
            time.sleep(args.random.uniform(0.3, 0.85) * args.timeout)
            os.kill(job.pids()[culprit], signal.SIGCONT)
        if bits_of(job, processes) != wanted:
            raise Failure(f"other bits:\n{job.text}")
        return time.monotonic() - start


def long_compute(args, processes):
    """Steps take many times the timeout, which is a quarter of the others' here."""
    timeout = args.timeout / 4
    with fault_job(args, processes, "compute", timeout=100) as job:
        wanted = bits_of(job, processes)
    with fault_job(args, processes, "compute", timeout=timeout) as job:
        start = time.monotonic()
        if bits_of(job, processes) != wanted:
            raise Failure(f"other bits:\n{job.text}")
        return time.monotonic() - start


# ---- faults of the command -------------------------------------------------------------------------------------------


class CommandJob(Job):
    """`ringattn run` over files, in a folder that must be afterwards as it was before."""

    def __init__(self, args, processes, of_rank=None, survive=True):
        """of_rank: further options of single ranks."""
        self.folder = args.folder.name
        self.out = os.path.join(self.folder, "o.npy")
        self.before = set(os.listdir(self.folder))
        files = [word for name in "qkv" for word in (f"--{name}", os.path.join(self.folder, name + ".npy"))]
        program = [args.command, "run", *files, "--out", self.out, "--transport", "mpi",
                   "--timeout", args.timeout, "--causal"]
        super().__init__(args, [program + list((of_rank or {}).get(rank, [])) for rank in range(processes)], survive)

    def check(self, culprit, args):
        seconds = self.time_to_end(args.timeout + args.slack)
        check_exit(self)
        check_folder(self.folder, self.before)
        check_named_by_command(self, culprit)
        return seconds


def write_inputs(args, tokens):
    for name in "qkv":
        path = os.path.join(args.folder.name, name + ".npy")
        subprocess.run([args.command, "random", "--shape", f"1,{tokens},6,64", "--out", path], check=True)


def make_inputs(args):
    """So many tokens that a job of the most processes computes for longer than MPI needs to start and to end it. Without
    that a fault meets MPI_Init, which has a deadline of its own."""
    write_inputs(args, 16)
    most = max(args.counts)
    args.start_seconds = {processes: usual_seconds(args, processes) for processes in args.counts}
    tokens = 9000
    write_inputs(args, tokens)
    while usual_seconds(args, most) < 2 * args.start_seconds[most] and tokens < 100000:
        tokens *= 2
        write_inputs(args, tokens)


def usual_seconds(args, processes):
    """How long the job takes from when its processes are there, unbroken."""
    with CommandJob(args, processes) as job:
        job.wait_for_ranks()
        start = time.monotonic()
        job.finish(STARTUP_SECONDS)
        os.remove(job.out)
        return time.monotonic() - start


def signal_command(args, processes, number):
    """In the middle of a pass. A job that was over before that does not count."""
    culprit = args.random.randrange(processes)
    for _ in range(5):
        start = args.start_seconds[processes]
        work = max(usual_seconds(args, processes) - start, 0)
        with CommandJob(args, processes) as job:
            job.wait_for_ranks()
            time.sleep(start + work * args.random.uniform(0.1, 0.7))
            if is_alive(job.known_pids[culprit]) and not os.path.exists(job.out):
                os.kill(job.known_pids[culprit], number)
                return job.check(culprit, args)
            job.finish()
            os.remove(job.out)
    raise Failure("every job was over before it could be broken")


def kill_command(args, processes):
    return signal_command(args, processes, signal.SIGKILL)


def stop_command(args, processes):
    return signal_command(args, processes, signal.SIGSTOP)


def end_of_stopped(job, culprit, args):
    """How long the job took to end. A process that was stopped when all others had left MPI has nobody to miss it: it stays
    until it is continued, and the job must then have been whole."""
    try:
        return job.time_to_end(args.timeout + args.slack)
    except Failure:
        left = [rank for rank, pid in job.known_pids.items() if is_alive(pid)]
        if left != [culprit] or not os.path.exists(job.out):
            raise
        os.kill(job.known_pids[culprit], signal.SIGCONT)
        job.finish()
        if job.process.returncode != 0:
            raise
        return 0


def stop_at_the_end_command(args, processes):
    """In the last moments: outputs are being written, checked or renamed, or MPI is being left. A job that was already over
    must be whole."""
    usual = usual_seconds(args, processes)
    culprit = args.random.randrange(processes)
    with CommandJob(args, processes) as job:
        job.wait_for_ranks()
        time.sleep(usual * args.random.uniform(0.8, 1))
        if is_alive(job.known_pids[culprit]):
            os.kill(job.known_pids[culprit], signal.SIGSTOP)
        seconds = end_of_stopped(job, culprit, args)
        is_whole = os.path.exists(job.out)
        if is_whole:
            os.remove(job.out)
        if job.process.returncode == 0 and not is_whole:
            raise Failure(f"mpirun exited with 0, and there is no output:\n{job.text}")
        check_folder(job.folder, job.before)
        return seconds


def wrong_option_command(args, processes):
    """One rank is started with an option that is refused, or that the others do not have."""
    culprit = args.random.randrange(processes)
    wrong = args.random.choice([["--ranks", processes + 1], ["--window", "-3,0"], ["--scale", "0.25"],
                                ["--q", os.path.join(args.folder.name, "absent.npy")]])
    with CommandJob(args, processes, {culprit: wrong}, survive=False) as job:
        start = time.monotonic()
        job.finish(STARTUP_SECONDS)
        seconds = time.monotonic() - start
        if seconds > START_SECONDS + args.timeout + args.slack:
            raise Failure(f"the job took {seconds:.1f} s:\n{job.text}")
        check_exit(job)
        check_folder(job.folder, job.before)
        if ERROR not in job.text:
            raise Failure(f"nobody said anything:\n{job.text}")
        return seconds


# ---- running them ----------------------------------------------------------------------------------------------------

FAULTS = [kill_by_default, kill, stop, stop_and_go_on, long_compute, mismatch, memory]
COMMAND_FAULTS = [kill_command, stop_command, stop_at_the_end_command, wrong_option_command]


def lets_survivors_go_on(mpiexec):
    """Open MPI can; MPICH's mpiexec, or UCX beneath it, ends the survivors of a killed process one way or another."""
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    return "Open MPI" in version


def choose_faults(args):
    faults = FAULTS + (COMMAND_FAULTS if args.command else [])
    if args.faults:
        names = args.faults.split(",")
        faults = [fault for fault in faults if fault.__name__ in names]
    if not lets_survivors_go_on(args.mpiexec):
        faults = [fault for fault in faults if fault not in (kill, kill_command)]
    return faults


def run_trials(args, fault):
    """How many trials failed."""
    failures, longest, args.held = [], 0, 0
    for trial in range(args.trials):
        try:
            longest = max(longest, fault(args, next(args.processes)))
        except Failure as failure:
            failures.append(failure)
            print(f"FAIL  {fault.__name__}, trial {trial}: {failure}", flush=True)
    print(f"{'FAIL' if failures else 'ok'}    {fault.__name__}: {args.trials - len(failures)} of {args.trials}, the longest "
          f"took {longest:.2f} s" + (f"; ranks held inside MPI: {args.held}" if args.held else ""), flush=True)
    return len(failures)


def endlessly(numbers):
    while True:
        yield from numbers


def main():
    parser = argparse.ArgumentParser(description="breaks MPI jobs and checks how they end")
    parser.add_argument("mpiexec")
    parser.add_argument("fault")
    parser.add_argument("--command", help="the ringattn command, to be broken as well")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--processes", default="2,3,4,5")
    parser.add_argument("--timeout", type=float, default=2)
    parser.add_argument("--slack", type=float, default=1)
    parser.add_argument("--faults", help="only these, by name")
    parser.add_argument("--seed", type=int, default=random.randrange(1000000))
    args = parser.parse_args()
    args.random = random.Random(args.seed)
    args.counts = [int(number) for number in args.processes.split(",")]
    args.processes = endlessly(args.counts)
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        args.folder = argparse.Namespace(name=name)
        if args.command:
            make_inputs(args)
        failed = sum(run_trials(args, fault) for fault in choose_faults(args))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
