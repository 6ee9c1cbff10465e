"""The same command under mpirun."""
import json
import os
import signal
import subprocess
import time
import unittest

from command import ERROR, MPI_ENVIRONMENT, MPIRUN, RINGATTN, Workspace, furthest, mpirun, ringattn


def children(pid):
    """The processes that pid started."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(name))
    return sorted(found)


@unittest.skipUnless(MPIRUN, "built without MPI")
class Mpi(Workspace):
    def test_equals_threads(self):
        self.make_problem(batch=2, seq=41, heads=4, kv_heads=2)
        for processes, flags in [(1, []), (3, ["--layout", "zigzag", "--strategy", "ring"]),
                                 (4, ["--layout", "striped", "--strategy", "pairwise"])]:
            flags = ["--causal", *flags]
            with self.subTest(processes=processes):
                self.run_ok("run", *self.input_args(), *self.outputs("thread"), "--ranks", processes, *flags)
                wanted = self.load_outputs()
                done = mpirun(processes, "run", *self.input_args(), *self.outputs("mpi"), "--transport", "mpi",
                              "--report", self.path("r.json"), *flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                for name, values in self.load_outputs().items():
                    self.assertEqual(furthest(values, wanted[name]), 0, name)
                with open(self.path("r.json"), encoding="utf-8") as file:
                    report = json.load(file)
                self.assertEqual((report["transport"], len(report["ranks"])), ("mpi", processes))
                for rank in report["ranks"]:
                    for way in ("forward", "backward"):
                        self.assertEqual(rank[way]["bytes_sent"], rank[way]["bytes_planned"])
        self.assertEqual([name for name in os.listdir(self.folder) if "partial" in name], [])

    def refuse(self, processes, *args, words=()):
        before = sorted(os.listdir(self.folder))
        done = mpirun(processes, *args)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count(ERROR), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_refusals_are_said_once(self):
        self.make_problem()
        out = ["--out", self.path("o.npy"), "--transport", "mpi"]
        self.refuse(2, "run", *self.input_args(), *out, "--ranks", 3, words=["--ranks"])
        self.refuse(3, "run", *self.input_args(**{"--k": self.path("absent.npy")}), *out, words=["--k:"])
        self.refuse(2, "run", *self.input_args(), *out, "--cu-seqlens", "0,5", words=["--cu-seqlens"])

    def test_ranks_that_agree_are_allowed(self):
        self.make_problem()
        done = mpirun(2, "run", *self.input_args(), "--out", self.path("o.npy"), "--transport", "mpi", "--ranks", 2)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_bench_and_verify(self):
        done = mpirun(2, "bench", "--seq", 64, "--dim", 8, "--transport", "mpi", "--json", "--repeat", 1, "--backward")
        rows = json.loads(done.stdout)
        self.assertEqual([(row["transport"], row["ranks"]) for row in rows], [("mpi", 2)] * 2)
        done = mpirun(3, "verify", "--seq", 64, "--transport", "mpi", "--dtype", "f64")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("against fp64"), 1)


    def test_the_launcher_is_noticed(self):
        """Without --transport the processes share the job, rather than do it once each."""
        self.make_problem()
        out = ["--out", self.path("o.npy"), "--report", self.path("r.json")]
        done = mpirun(3, "run", *self.input_args(), *out)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("r.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual((report["transport"], len(report["ranks"])), ("mpi", 3))
        self.refuse(2, "run", *self.input_args(), *out, "--ranks", 3, words=["--ranks"])
        done = mpirun(2, "verify", "--seq", 32)
        self.assertEqual((done.returncode, done.stdout.count("against fp64")), (0, 1))
        done = mpirun(2, "verify", "--seq", 32, "--transport", "thread", "--ranks", 3)
        self.assertEqual((done.returncode, done.stdout.count("3 ranks")), (0, 2))
        done = mpirun(1, "verify", "--seq", 32, "--ranks", 3)
        self.assertEqual((done.returncode, done.stdout.count("3 ranks")), (0, 1))

    def test_a_launcher_of_another_mpi(self):
        """It says that there are several processes, but MPI knows of this one only."""
        self.make_problem()
        done = ringattn("run", *self.input_args(), "--out", self.path("out.npy"),
                        env={**os.environ, **MPI_ENVIRONMENT, "PMI_SIZE": "2", "PMI_RANK": "0"})
        self.assert_refused(done, "2 processes")

    def differ(self, *args, one, others=2, environment=None):
        """A job whose last process gets the arguments `one` too; returns what it said, and in how many seconds."""
        command = [MPIRUN, "-n", str(others), RINGATTN, *map(str, args), ":", "-n", "1", RINGATTN, *map(str, args), *one]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                              env={**os.environ, **MPI_ENVIRONMENT, **(environment or {})})
        return done, time.monotonic() - began

    def test_check_on_any_rank(self):
        self.make_problem()
        args = ["run", *self.input_args(), "--out", self.path("o.npy"), "--transport", "mpi"]
        done, _ = self.differ(*args, one=["--check", "5"])
        self.assertEqual((done.returncode, done.stdout.count("checked 40 elements")), (0, 1), done.stderr)

    def test_wrong_ranks_on_one(self):
        self.make_problem()
        before = sorted(os.listdir(self.folder))
        args = ["run", *self.input_args(), "--out", self.path("o.npy"), "--transport", "mpi", "--timeout", 30]
        done, seconds = self.differ(*args, one=["--ranks", "7"])
        self.assertEqual((done.returncode, done.stderr.count(ERROR)), (2, 1), done.stderr)
        self.assertIn("rank 2: --ranks: 7 ranks", done.stderr)
        self.assertLess(seconds, 15)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_one_that_cannot_open_is_named(self):
        self.make_problem()
        args = ["run", *self.input_args(), "--out", self.path("o.npy"), "--transport", "mpi"]
        done, _ = self.differ(*args, one=["--k", self.path("absent.npy")])
        self.assertEqual((done.returncode, done.stderr.count(ERROR)), (2, 1), done.stderr)
        self.assertIn("rank 2: --k:", done.stderr)

    def test_a_problem_refused_by_one_is_said_once(self):
        """The one leaves at once; the others, which learn of it inside their work, have nobody left to agree with."""
        for name in "verify", "bench":
            with self.subTest(command=name):
                done, _ = self.differ(name, "--seq", 64, "--heads", 8, "--dim", 8, "--transport", "mpi",
                                      one=["--kv-heads", "3"])
                self.assertEqual((done.returncode, done.stderr.count(ERROR)), (2, 1), done.stderr)

    def test_failures_are_seen_when_exit_codes_are_not(self):
        """With the setting that lets survivors speak, mpirun does not look at exit codes."""
        self.make_problem()
        alone = {"OMPI_MCA_orte_abort_on_non_zero_status": "0"}
        args = ["run", *self.input_args(), "--out", self.path("o.npy"), "--transport", "mpi"]
        for one, word in ((["--causal"], "causal"), (["--ranks", "7"], "--ranks"), (["--check", "x"], "--check")):
            with self.subTest(one=one):
                done, seconds = self.differ(*args, one=one, environment=alone)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(word, done.stderr)
                self.assertLess(seconds, 30)
        done, _ = self.differ(*args, one=[], environment=alone)
        self.assertEqual(done.returncode, 0, done.stderr)


@unittest.skipUnless(MPIRUN, "built without MPI")
class Faults(Workspace):
    """A process that stalls or dies in the middle: the others say so in time, and nothing is left."""

    def hit(self, which, number, *args):
        """Starts three processes that work for minutes, sends one of them a signal, returns what the job said."""
        before = sorted(os.listdir(self.folder))
        job = subprocess.Popen([MPIRUN, "-n", "3", RINGATTN, *args, "--transport", "mpi", "--timeout", "2"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **MPI_ENVIRONMENT})
        self.addCleanup(job.kill)
        while len(children(job.pid)) < 3 and job.poll() is None:
            time.sleep(0.05)
        time.sleep(2)
        began = time.monotonic()
        os.kill(children(job.pid)[which], number)
        _, said = job.communicate(timeout=60)
        self.assertLess(time.monotonic() - began, 15)
        self.assertNotEqual(job.returncode, 0)
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        return said

    def test_stopped(self):
        said = self.hit(1, signal.SIGSTOP, "bench", "--seq", "300", "--repeat", "1000000")
        self.assertIn(ERROR, said)
        self.assertIn("rank 1", said)

    def test_killed(self):
        for name in ("q", "k", "v"):
            self.run_ok("random", "--shape", "1,20000,8,64", "--out", self.path(name + ".npy"))
        files = [arg for name in ("q", "k", "v") for arg in (f"--{name}", self.path(name + ".npy"))]
        self.hit(0, signal.SIGKILL, "run", *files, "--out", self.path("o.npy"), "--kernel", "ref")


@unittest.skipIf(MPIRUN, "built with MPI")
class NoMpi(Workspace):
    def test_says_so(self):
        self.make_problem()
        done = ringattn("run", *self.input_args(), "--out", self.path("out.npy"), "--transport", "mpi")
        self.assert_refused(done, "--transport mpi", "without MPI")

    def test_a_launcher_is_noticed(self):
        together = {**os.environ, "OMPI_COMM_WORLD_SIZE": "2"}
        self.assert_refused(ringattn("verify", "--seq", 16, env=together), "2 processes", "without MPI")
        self.run_ok("verify", "--seq", 16, "--transport", "thread", env=together)


if __name__ == "__main__":
    unittest.main()
