"""Processes of one job whose command lines differ: no file that has the rows of some of them only."""
import json
import os
import subprocess
import unittest

from command import ERROR, MPI_ENVIRONMENT, MPIRUN, RINGATTN, Workspace


def mpirun_each(*lines):
    """One process for each list of arguments."""
    command = []
    for line in lines:
        command += [":"] * bool(command) + ["-n", "1", RINGATTN, *map(str, line)]
    return subprocess.run([MPIRUN, *command], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **MPI_ENVIRONMENT})


@unittest.skipUnless(MPIRUN, "built without MPI")
class Request(Workspace):
    def setUp(self):
        super().setUp()
        self.make_problem()
        self.line = ["run", *self.input_args(), "--out", self.path("o.npy"), "--transport", "mpi", "--timeout", 20]

    def refuse(self, *lines, words):
        before = sorted(os.listdir(self.folder))
        done = mpirun_each(*lines)
        self.assertEqual((done.returncode, done.stderr.count(ERROR)), (2, 1), done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_an_output_of_some(self):
        lse = [*self.line, "--lse", self.path("l.npy")]
        self.refuse(lse, self.line, words=["--lse", "rank 1 was not"])
        self.refuse(self.line, self.line, lse, words=["--lse", "rank 2 was asked", "rank 0 was not"])

    def test_a_gradient_of_some(self):
        backward = [*self.line, "--dout", self.dout, "--dq", self.path("a.npy"), "--dk", self.path("b.npy")]
        both = [*backward, "--dv", self.path("c.npy")]
        self.refuse(both, backward, words=["--dv", "rank 1 was not"])
        self.refuse(self.line, both, words=["--dout", "rank 1 was asked"])

    def test_a_report_is_rank_0s(self):
        report = [*self.line, "--report", self.path("r.json")]
        self.refuse(self.line, report, words=["--report", "rank 1 was asked"])
        done = mpirun_each(report, self.line)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("r.json"), encoding="utf-8") as file:
            self.assertEqual(len(json.load(file)["ranks"]), 2)


if __name__ == "__main__":
    unittest.main()
