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


if __name__ == "__main__":
    unittest.main()
