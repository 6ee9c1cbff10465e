"""The command on several processes without MPI: launch, a folder, torchrun's variables; and beside MPI."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from command import ERROR, MPI_ENVIRONMENT, MPIRUN, RINGATTN, Workspace, furthest, ringattn

HAS_UCX = "ucx" in json.loads(ringattn("info", "--json").stdout)["transports"]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "UCX_NET_DEVICES": "lo"}


def start(args, preexec_fn=None, **variables):
    return subprocess.Popen([RINGATTN, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            preexec_fn=preexec_fn, env={**os.environ, **ENVIRONMENT, **variables})


def finish(processes, seconds=60):
    """[(exit code, stderr)]"""
    found = []
    for process in processes:
        _, errors = process.communicate(timeout=seconds)
        found.append((process.returncode, errors))
    return found


def processes_of(parent):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(name))
    return sorted(found)


@unittest.skipUnless(HAS_UCX, "UCX is not installed, or ringattn was built without it")
class Ucx(Workspace):
    def setUp(self):
        super().setUp()
        self.make_problem(batch=2, seq=41, heads=4, kv_heads=2)
        self.flags = ["--causal", "--layout", "zigzag", "--strategy", "ring"]

    def thread_outputs(self, ranks):
        self.run_ok("run", *self.input_args(), *self.outputs("thread"), "--ranks", ranks, *self.flags)
        return self.load_outputs()

    def check_outputs(self, wanted, processes, transport="ucx"):
        for name, values in self.load_outputs().items():
            self.assertEqual(furthest(values, wanted[name]), 0, name)
        with open(self.path("r.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual((report["transport"], len(report["ranks"])), (transport, processes))
        for rank in report["ranks"]:
            for way in ("forward", "backward"):
                self.assertEqual(rank[way]["bytes_sent"], rank[way]["bytes_planned"])

    def run_args(self):
        return ["run", *self.input_args(), *self.outputs("ucx"), "--report", self.path("r.json"), *self.flags]

    def test_launch_equals_threads(self):
        for processes in (1, 3, 4):
            with self.subTest(processes=processes), tempfile.TemporaryDirectory() as folder:
                wanted = self.thread_outputs(processes)
                done = finish([start(["launch", "-n", processes, "--", *self.run_args()], TMPDIR=folder)])
                self.assertEqual(done[0], (0, ""))
                self.check_outputs(wanted, processes)
                self.assertEqual(os.listdir(folder), [])

    def test_a_folder_brings_processes_together(self):
        wanted = self.thread_outputs(3)
        with tempfile.TemporaryDirectory() as folder:
            flags = ["--transport", "ucx", "--ranks", 3, "--rendezvous", folder]
            ranks = [start([*self.run_args(), *flags, "--rank", rank]) for rank in (2, 0, 1)]
            self.assertEqual([code for code, _ in finish(ranks)], [0, 0, 0])
            self.assertEqual(os.listdir(folder), [])
        self.check_outputs(wanted, 3)

    def test_variables_bring_processes_together(self):
        wanted = self.thread_outputs(3)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        variables = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RINGATTN_JOB_KEY": "of a test"}
        ranks = [start([*self.run_args(), "--transport", "ucx"], RANK=str(rank), **variables) for rank in range(3)]
        self.assertEqual([code for code, _ in finish(ranks)], [0, 0, 0])
        self.check_outputs(wanted, 3)

    def test_processes_of_torchrun_are_ranks(self):
        """Its own store has MASTER_PORT, so the next port is taken."""
        wanted = self.thread_outputs(2)
        with socket.socket() as store, socket.socket() as following:
            store.bind(("127.0.0.1", 0))
            port = store.getsockname()[1]
            try:
                following.bind(("127.0.0.1", port + 1))
            except OSError:
                self.skipTest(f"somebody has port {port + 1}")
            following.close()
            variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                         "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True",
                         "RINGATTN_JOB_KEY": "of a test"}
            ranks = [start(self.run_args(), RANK=str(rank), **variables) for rank in range(2)]
            self.assertEqual([code for code, _ in finish(ranks)], [0, 0])
        self.check_outputs(wanted, 2)

    @unittest.skipUnless(MPIRUN, "built without MPI")
    def test_mpi_brings_addresses_round(self):
        wanted = self.thread_outputs(3)
        done = subprocess.run([MPIRUN, "-n", "3", RINGATTN, *map(str, self.run_args()), "--transport", "ucx"],
                              capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, **MPI_ENVIRONMENT, **ENVIRONMENT})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_outputs(wanted, 3)

    def test_refusals(self):
        out = ["run", *self.input_args(), "--out", self.path("o.npy")]
        cases = [
            (["launch", "--", *out], "-n"),
            (["launch", "-n", "0", "--", *out], "-n"),
            (["launch", "-n", "2"], "--"),
            (["launch", "-n", "2", "--"], "--"),
            (["launch", "-n", "2", *out], "launch takes"),
            (["launch", "-n", "2", "--", "plan", "--seq", "9"], "plan"),
            (["launch", "-n", "2", "--", *out, "--ranks", "2"], "--ranks"),
            (["launch", "-n", "2", "--", *out, "--strategy", "best"], "--strategy"),
            ([*out, "--rank", "0"], "--transport ucx"),
            ([*out, "--transport", "ucx", "--rank", "0", "--ranks", "2"], "--rendezvous"),
            ([*out, "--transport", "ucx", "--rendezvous", self.folder, "--ranks", "2"], "--rank"),
            ([*out, "--transport", "ucx", "--rank", "2", "--ranks", "2", "--rendezvous", self.folder], "--rank"),
            ([*out, "--transport", "ucx"], "RANK is not set"),
        ]
        for args, word in cases:
            with self.subTest(args=args[-4:]):
                done = ringattn(*args)
                self.assertEqual((done.returncode, done.stderr.count(ERROR)), (2, 1), done.stderr)
                self.assertIn(word, done.stderr)

    def test_a_wrong_file_is_said_once_per_job(self):
        args = ["launch", "-n", 3, "--", "run", *self.input_args(), "--out", self.path("none/o.npy")]
        (code, errors), = finish([start(args)])
        self.assertEqual(errors.count(ERROR), 1, errors)
        self.assertNotEqual(code, 0)

    def test_a_folder_of_others_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            done = ringattn("run", *self.input_args(), "--out", self.path("o.npy"), "--transport", "ucx", "--rank", 0,
                            "--ranks", 1, "--rendezvous", folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("chmod 700", done.stderr)

    def test_a_process_that_does_not_come_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            (code, errors), = finish([start([*self.run_args(), "--transport", "ucx", "--rank", 0, "--ranks", 2,
                                             "--rendezvous", folder, "--timeout", 1])])
        self.assertEqual(code, 1)
        self.assertIn("rank 1", errors)
        self.assertLess(time.monotonic() - began, 3)

    def break_launch(self, how):
        """A long job, one process of which gets a signal: launch and every process are gone soon, and leave nothing."""
        job = start(["launch", "-n", 3, "--", "bench", "--seq", 2048, "--heads", 4, "--dim", 64, "--repeat", 100000,
                     "--timeout", 3], TMPDIR=self.folder)
        try:
            end = time.monotonic() + 30
            while len(processes_of(job.pid)) < 3:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            time.sleep(0.7)
            pids = processes_of(job.pid)
            began = time.monotonic()
            how(job.pid, pids)
            _, errors = job.communicate(timeout=20)
            seconds = time.monotonic() - began
            time.sleep(0.05)
            left = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
            self.assertEqual(left, [])
            self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("ringattn-")], [])
            return job.returncode, errors, seconds
        finally:
            if job.poll() is None:
                job.kill()
                job.communicate()

    def test_a_killed_process_ends_the_job(self):
        code, errors, seconds = self.break_launch(lambda launch, pids: os.kill(pids[2], signal.SIGKILL))
        self.assertEqual(code, 1)
        self.assertIn("signal 9", errors)
        self.assertIn("is gone", errors)
        self.assertLess(seconds, 4)

    def test_a_stopped_process_ends_the_job(self):
        code, errors, seconds = self.break_launch(lambda launch, pids: os.kill(pids[1], signal.SIGSTOP))
        self.assertEqual(code, 1)
        self.assertIn("silent", errors)
        self.assertLess(seconds, 3 + 1 + 4.5)  # the deadline, and launch's patience with the process that is stopped

    def test_launch_that_is_told_to_end_ends_all(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                code, _, seconds = self.break_launch(lambda launch, pids: os.kill(launch, number))
                self.assertEqual(code, 1)
                self.assertLess(seconds, 3)

    def test_signals_that_are_ignored(self):
        """As nohup, and shells for what they start in the background, ignore them."""
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)

        job = start(["launch", "-n", 2, "--", "bench", "--seq", 512, "--heads", 2, "--repeat", 100], preexec_fn=ignore)
        while len(processes_of(job.pid)) < 2 and job.poll() is None:
            time.sleep(0.01)
        for pid in [job.pid, *processes_of(job.pid)]:
            for number in (signal.SIGHUP, signal.SIGINT):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        (code, errors), = finish([job])
        self.assertEqual(code, 0, errors)


if __name__ == "__main__":
    unittest.main()
