"""The command on a GPU: the same answers as on the CPU, in one process and under mpirun; skipped where there is no GPU."""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))

from command import MPI_ENVIRONMENT, MPIRUN, RINGATTN, Workspace, furthest, ringattn  # noqa: E402

INFO = json.loads(ringattn("info", "--json").stdout)
# Several ranks on one GPU must claim to be different hosts.
OWN_HOST = 'NCCL_HOSTID=ringattn-${OMPI_COMM_WORLD_RANK:-$PMI_RANK} exec "$@"'


def mpirun(processes, *args):
    environment = {**os.environ, **MPI_ENVIRONMENT, "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    return subprocess.run([MPIRUN, "-n", str(processes), "sh", "-c", OWN_HOST, "sh", RINGATTN, *map(str, args)],
                          capture_output=True, text=True, timeout=240, env=environment)


class Gpu(Workspace):
    def test_verify(self):
        for flags in [["--dtype", "f64"], ["--dtype", "bf16", "--causal"], ["--dtype", "f16", "--window", "64,0"],
                      ["--ranks", 3, "--causal", "--kv-heads", 2, "--heads", 4],
                      ["--ranks", 4, "--strategy", "pairwise", "--layout", "striped", "--dilated", "64:1,256:4"],
                      ["--ranks", 4, "--strategy", "passq", "--causal"],
                      ["--ranks", 5, "--strategy", "allgather", "--cu-seqlens", "0,100,101,433"]]:
            with self.subTest(flags=flags):
                self.run_ok("verify", "--device", "cuda", "--seq", 433, "--heads", 4, "--dim", 40, *flags)

    def test_verify_large_messages(self):
        """Of 1 MB or more, which ranks on one GPU copy, sum and zero by kernels of the library's own."""
        for flags in [["--seq", 2700, "--strategy", "ring", "--layout", "zigzag"],
                      ["--seq", 16384, "--strategy", "allgather", "--layout", "contiguous", "--window", "63,0"]]:
            with self.subTest(flags=flags):
                done = self.run_ok("verify", "--device", "cuda:0", "--ranks", 4, "--heads", 2, "--dim", 128, "--dtype",
                                   "bf16", "--causal", *flags)
                self.assertIn("dk", done.stdout)

    def test_run_equals_the_cpu(self):
        self.make_problem(batch=2, seq=61, seq_k=75, heads=4, kv_heads=2, dim=24, dim_v=16)
        self.run_ok("run", *self.input_args(), *self.outputs("cpu"), "--ranks", 3, "--causal")
        wanted = self.load_outputs()
        self.run_ok("run", *self.input_args(), *self.outputs("cuda"), "--ranks", 3, "--causal", "--device", "cuda:0",
                    "--report", self.path("r.json"), "--check", 20)
        for name, values in self.load_outputs().items():
            self.assertLess(furthest(values, wanted[name]), 2e-5, name)
        with open(self.path("r.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual((report["device"], report["transport"]), ("cuda", "thread"))
        for rank in report["ranks"]:
            for which in ("forward", "backward"):
                self.assertEqual(rank[which]["bytes_sent"], rank[which]["bytes_planned"])

    def test_bench(self):
        rows = self.run_json("bench", "--json", "--device", "cuda", "--seq", 1024, "--heads", 2, "--dim", 128, "--dtype",
                             "bf16", "--ranks", "1,2", "--backward", "--repeat", 2)
        self.assertEqual(len(rows), 4)
        for row in rows:
            self.assertEqual(row["device"], "cuda")
            self.assertGreater(row["gflops"], 0)
            self.assertIsNone(row["peak_fraction"])

    def test_unknown_kernel(self):
        self.make_problem()
        done = ringattn("run", *self.input_args(), "--out", self.path("out.npy"), "--device", "cuda", "--kernel", "ref")
        self.assert_refused(done, "ref", "cuda")

    def test_kernels_for_less_shared_memory(self):
        for kernel, dtypes in (("cuda_sm86", ("f32", "bf16", "f16", "f64")), ("cuda_sm75", ("f32", "f16"))):
            for dtype in dtypes:
                for dim in (40, 128, 200):
                    with self.subTest(kernel=kernel, dtype=dtype, dim=dim):
                        done = ringattn("verify", "--device", "cuda", "--kernel", kernel, "--dtype", dtype, "--seq", 300,
                                        "--heads", 2, "--dim", dim, "--causal")
                        if "no kernel named" in done.stderr:
                            self.skipTest(f"built without {kernel}")
                        self.assertEqual(done.returncode, 0, done.stderr)

    def test_type_without_a_kernel(self):
        done = ringattn("verify", "--device", "cuda", "--kernel", "cuda_sm75", "--dtype", "bf16", "--seq", 64)
        if "no kernel named" in done.stderr:
            self.skipTest("built without cuda_sm75")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no forward kernel for rows of", done.stderr)

    @unittest.skipUnless(MPIRUN, "built without MPI")
    def test_under_mpirun(self):
        """Ranks of one process that share a GPU compute in one call, so that their sums are made in another order than
        those of processes; processes have the same bits, whatever carries their messages."""
        self.make_problem(seq=97, heads=4, kv_heads=2, dim=32)
        self.run_ok("run", *self.input_args(), *self.outputs("thread"), "--ranks", 3, "--causal", "--device", "cuda")
        wanted, first = self.load_outputs(), None
        for transport in ["mpi"] + ["nccl"] * ("nccl" in INFO["transports"]):
            with self.subTest(transport=transport):
                done = mpirun(3, "run", *self.input_args(), *self.outputs(transport), "--causal", "--device", "cuda",
                              "--transport", transport, "--timeout", 30)
                self.assertEqual(done.returncode, 0, done.stderr)
                found = self.load_outputs()
                first = first or found
                for name, values in found.items():
                    self.assertLess(furthest(values, wanted[name]), 1e-5, name)
                    self.assertEqual(furthest(values, first[name]), 0, name)


if __name__ == "__main__":
    if len(INFO["devices"]) < 2:
        print("no GPU, skipped")
        sys.exit(0)
    unittest.main()
