"""What run computes: equal to the golden files, whatever the ranks, strategy and layout; formats in and out."""
import math
import os
import signal
import struct
import subprocess
import time
import unittest

from command import GOLDEN, RINGATTN, Workspace, furthest, load, npy_bytes, pack, ringattn


class Golden(Workspace):
    """Problems that the definition's own Python implementation has solved, in f64."""

    def compare(self, name, flags, way):
        folder = os.path.join(GOLDEN, name)
        args = [arg for key in ("q", "k", "v", "dout") for arg in (f"--{key}", os.path.join(folder, key + ".npy"))]
        wanted = {"out": "o", "lse": "lse", "dq": "dq", "dk": "dk", "dv": "dv"}
        for key in wanted:
            args += [f"--{key}", self.path(key + ".npy")]
        self.run_ok("run", *args, *flags, *way)
        for key, file in wanted.items():
            descr, shape, values = load(self.path(key + ".npy"))
            _, wanted_shape, wanted_values = load(os.path.join(folder, file + ".npy"))
            self.assertEqual((descr, shape), ("<f8", wanted_shape))
            self.assertLess(furthest(values, wanted_values), 1e-11, (name, key, way))

    def test_all(self):
        ways = [["--ranks", "1"], ["--ranks", "3", "--strategy", "ring", "--layout", "zigzag"],
                ["--ranks", "4", "--strategy", "pairwise", "--layout", "striped"],
                ["--ranks", "5", "--strategy", "allgather", "--layout", "contiguous", "--dtype", "f64"],
                ["--transport", "self"]]
        with open(os.path.join(GOLDEN, "cases.txt"), encoding="utf-8") as file:
            cases = [line.split() for line in file if line.strip()]
        self.assertGreater(len(cases), 5)
        for name, *flags in cases:
            for way in ways:
                with self.subTest(name=name, way=way):
                    self.compare(name, flags, way)


class SameAnswer(Workspace):
    def test_ranks_layouts_strategies(self):
        self.make_problem(batch=2, seq=37, seq_k=41, heads=4, kv_heads=2, dim=5, dim_v=3)
        pattern = ["--causal", "--window", "20,4"]
        self.run_ok("run", *self.input_args(), *self.outputs("one"), *pattern)
        wanted = self.load_outputs()
        for ranks in (2, 3, 8, 50):
            for layout in ("contiguous", "zigzag", "striped", "auto"):
                for strategy in ("ring", "pairwise", "allgather", "passq"):
                    with self.subTest(ranks=ranks, layout=layout, strategy=strategy):
                        self.run_ok("run", *self.input_args(), *self.outputs("other"), *pattern, "--ranks", ranks,
                                    "--layout", layout, "--strategy", strategy)
                        for name, values in self.load_outputs().items():
                            self.assertLess(furthest(values, wanted[name]), 5e-6, name)

    def test_repeats_are_the_same_bits(self):
        self.make_problem(seq=64)
        contents = []
        for i in range(2):
            self.run_ok("run", *self.input_args(), *self.outputs(f"run{i}"), "--ranks", 3, "--causal")
            contents.append([load(path) for path in self.names.values()])
        self.assertEqual(*contents)

    def test_equals_form_and_last_value_wins(self):
        self.make_problem()
        self.run_ok("run", *self.input_args(), "--out", self.path("a.npy"), "--window", "3,0", "--scale", "0.5")
        self.run_ok("run", *[f"{flag}={path}" for flag, path in self.inputs.items()], f"--out={self.path('b.npy')}",
                    "--window=-1,-1", "--window=3,0", "--scale=0.5")
        self.assertEqual(load(self.path("a.npy")), load(self.path("b.npy")))


class EmptyDocuments(Workspace):
    """Equal neighbours in --cu-seqlens are a document without rows."""

    def test_they_change_nothing(self):
        self.make_problem(heads=4, kv_heads=2)
        self.run_ok("run", *self.input_args(), *self.outputs("plain"), "--causal", "--cu-seqlens", "0,10,24")
        wanted = self.load_outputs()
        for documents in ("0,10,10,24", "0,0,10,24", "0,10,24,24", "0,0,0,10,10,10,24,24"):
            for ranks in (1, 3, 5):
                with self.subTest(documents=documents, ranks=ranks):
                    self.run_ok("run", *self.input_args(), *self.outputs("empty"), "--causal", "--cu-seqlens", documents,
                                "--ranks", ranks, "--check", 100)
                    for name, values in self.load_outputs().items():
                        self.assertLess(furthest(values, wanted[name]), 2e-6, name)

    def test_each_cut_over_all_ranks(self):
        self.make_problem(heads=4, kv_heads=2)
        flags = ["--causal", "--cu-seqlens", "0,1,10,10,24"]
        self.run_ok("run", *self.input_args(), *self.outputs("plain"), *flags)
        wanted = self.load_outputs()
        for strategy in ("ring", "pairwise", "allgather", "passq"):
            for ranks in (2, 3, 5):
                with self.subTest(strategy=strategy, ranks=ranks):
                    self.run_ok("run", *self.input_args(), *self.outputs("cut"), *flags, "--ranks", ranks, "--layout",
                                "documents", "--strategy", strategy, "--check", 100)
                    for name, values in self.load_outputs().items():
                        self.assertLess(furthest(values, wanted[name]), 2e-6, name)

    def test_one_has_all_keys(self):
        self.make_problem(seq=24, seq_k=14)
        self.run_ok("run", *self.input_args(), *self.outputs("plain"), "--causal")
        wanted = self.load_outputs()
        for layout in ("contiguous", "documents", "auto"):
            with self.subTest(layout=layout):
                self.run_ok("run", *self.input_args(), *self.outputs("one"), "--causal", "--cu-seqlens", "0,24",
                            "--ranks", 3, "--layout", layout, "--check", 100)
                for name, values in self.load_outputs().items():
                    self.assertLess(furthest(values, wanted[name]), 2e-6, name)
        self.run_ok("verify", "--seq", 24, "--seq-k", 30, "--heads", 2, "--cu-seqlens", "0,24", "--ranks", 2)

    def test_queries_without_keys(self):
        self.make_problem(seq=24, seq_k=14)
        self.run_ok("run", *self.input_args(), *self.outputs("none"), "--cu-seqlens", "0,10,24", "--cu-seqlens-k", "0,0,14",
                    "--ranks", 3)
        results = self.load_outputs()
        self.assertEqual(list(results["out"][:10 * 16]), [0.0] * 160)
        self.assertEqual(list(results["lse"][:10]), [-math.inf] * 10)
        self.assertEqual(list(results["dq"][:10 * 16]), [0.0] * 160)
        self.assertGreater(min(map(abs, results["out"][160:])), 0)

    def test_other_commands(self):
        flags = ["--seq", 24, "--heads", 2, "--cu-seqlens", "0,0,9,9,24", "--ranks", 3]
        self.run_ok("verify", *flags, "--causal")
        self.run_ok("verify", *flags, "--cu-seqlens-k", "0,5,9,9,24")
        self.assertEqual(self.run_json("plan", *flags, "--json")["pairs"], 2 * (81 + 225))
        self.run_ok("bench", *flags, "--repeat", 1)


class Formats(Workspace):
    def test_versions_of_npy(self):
        self.make_problem()
        self.run_ok("run", *self.input_args(), "--out", self.path("a.npy"))
        for version in (2, 3):
            self.tensor("q.npy", (1, 24, 2, 8), version=version)
            self.run_ok("run", *self.input_args(), "--out", self.path("b.npy"))
            self.assertEqual(load(self.path("a.npy")), load(self.path("b.npy")))

    def test_header_in_any_order(self):
        self.make_problem()
        self.run_ok("run", *self.input_args(), "--out", self.path("a.npy"))
        with open(self.inputs["--q"], "rb") as file:
            data = file.read()[128:]
        self.write("q.npy", npy_bytes(None, data, header='{"shape":(1,24,2,8),"fortran_order":False,"descr":"<f4"}'))
        self.run_ok("run", *self.input_args(), "--out", self.path("b.npy"))
        self.assertEqual(load(self.path("a.npy")), load(self.path("b.npy")))

    def test_types_in_and_out(self):
        whole, rows = (1, 24, 2, 8), (1, 2, 24)
        shapes = {"out": whole, "lse": rows, "dq": whole, "dk": whole, "dv": whole}
        for descr, dtype, out in [("<f2", None, "<f4"), ("<f4", None, "<f4"), ("<f8", None, "<f8"),
                                  ("<f8", "f32", "<f4"), ("<f4", "f64", "<f8"), ("<f8", "bf16", "<f4"),
                                  ("<f4", "f16", "<f4"), ("<f2", "f64", "<f8")]:
            with self.subTest(descr=descr, dtype=dtype):
                self.make_problem(descr=descr)
                flags = ["--dtype", dtype] if dtype else []
                self.run_ok("run", *self.input_args(), *self.outputs("t"), "--ranks", 2, *flags)
                for name, path in self.names.items():
                    self.assertEqual(load(path)[:2], (out, shapes[name]))

    def test_rounding_on_the_way_in(self):
        """bf16 keeps 8 bits: values that it holds exactly come back exactly when each query sees one key."""
        self.inputs = {flag: self.write(flag[2:] + ".npy", npy_bytes((1, 3, 1, 1), pack([1.0, 1.00390625, -3.0])))
                       for flag in ("--q", "--k", "--v")}
        self.run_ok("run", *self.input_args(), "--out", self.path("o.npy"), "--window", "0,0", "--dtype", "bf16")
        self.assertEqual(list(load(self.path("o.npy"))[2]), [1.0, 1.0, -3.0])

    def test_rows_that_see_nothing(self):
        self.make_problem(seq=9, seq_k=4)
        self.run_ok("run", *self.input_args(), *self.outputs("m"), "--causal", "--ranks", 3)
        results = self.load_outputs()
        self.assertEqual(list(results["out"][:5 * 16]), [0.0] * 80)
        self.assertEqual(list(results["lse"][:5]), [-math.inf] * 5)
        self.assertTrue(all(math.isfinite(x) for name in ("out", "dq", "dk", "dv") for x in results[name]))

    def test_infinities_and_nans_do_not_crash(self):
        self.make_problem()
        values = [math.nan, math.inf, -math.inf, 1e38] * 96
        self.write("k.npy", npy_bytes((1, 24, 2, 8), struct.pack("<384f", *values)))
        self.run_ok("run", *self.input_args(), *self.outputs("n"), "--ranks", 2)

    def test_replaces_an_earlier_result_and_leaves_nothing_else(self):
        self.make_problem()
        self.write("o.npy", b"earlier")
        os.symlink(self.path("o.npy"), self.path("link.npy"))
        before = set(os.listdir(self.folder))
        self.run_ok("run", *self.input_args(), "--out", self.path("link.npy"))
        self.assertEqual(load(self.path("o.npy"))[1], (1, 24, 2, 8))
        self.assertTrue(os.path.islink(self.path("link.npy")))
        self.assertEqual(set(os.listdir(self.folder)), before)

    def test_relative_paths(self):
        self.make_problem()
        self.run_ok("run", "--q", "q.npy", "--k", "./k.npy", "--v", "v.npy", "--out", "o.npy", cwd=self.folder)
        self.assertEqual(load(self.path("o.npy"))[1], (1, 24, 2, 8))


class Failures(Workspace):
    def test_full_disk(self):
        """A file size limit stands for it: the write fails, exit 1, nothing is left."""
        self.make_problem(seq=256)
        before = sorted(os.listdir(self.folder))
        limit = ["sh", "-c", 'ulimit -f 8; trap "" XFSZ; exec "$@"', "sh"]
        limited = subprocess.run([*limit, RINGATTN, "run", *self.input_args(), "--out", self.path("o.npy")],
                                 capture_output=True, text=True, timeout=60)
        self.assert_refused(limited, "--out:", code=1)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_stdout_that_is_full(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([RINGATTN, "info"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.startswith("ringattn: error: "))

    def test_termination_leaves_no_output(self):
        self.make_problem(seq=3000, dim=64)
        before = set(os.listdir(self.folder))
        for delay in (0.05, 0.2):
            process = subprocess.Popen([RINGATTN, "run", *self.input_args(), *self.outputs("t"), "--kernel", "ref",
                                        "--ranks", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
            if process.returncode != 0:
                self.assertEqual(set(os.listdir(self.folder)), before)


class Check(Workspace):
    def test_says_how_far_it_is(self):
        self.make_problem(seq=100, heads=4, kv_heads=2)
        done = self.run_ok("run", *self.input_args(), "--out", self.path("o.npy"), "--causal", "--ranks", 3,
                           "--check", 10)
        self.assertIn("checked 80 elements", done.stdout)

    def test_more_rows_than_there_are(self):
        self.make_problem(seq=3)
        self.run_ok("run", *self.input_args(), "--out", self.path("o.npy"), "--check", 1000)

    def test_out_of_tolerance_leaves_no_output(self):
        """Scores in the thousands have an f32 rounding error of 1e-4: no softmax over them is exact."""
        self.make_problem(seq=200)
        done = ringattn("run", *self.input_args(), "--out", self.path("out.npy"), "--check", 400, "--scale", 300)
        self.assert_refused(done, "--check", "tolerance", code=1)

    def test_nan_where_the_definition_has_nan(self):
        """A query of NaN: its rows are NaN, which is right, and no others are."""
        self.make_problem(seq=10, heads=1, dim=4)
        values = list(load(self.inputs["--q"])[2])
        values[12:16] = [math.nan] * 4
        with open(self.inputs["--q"], "wb") as file:
            file.write(npy_bytes((1, 10, 1, 4), pack(values)))
        for kernel in ("ref", "portable", "auto"):
            self.run_ok("run", *self.input_args(), "--out", self.path("o.npy"), "--check", 10, "--kernel", kernel)
            is_nan = [math.isnan(x) for x in load(self.path("o.npy"))[2]]
            self.assertEqual(is_nan, [12 <= i < 16 for i in range(40)], kernel)

    def test_silent_without(self):
        self.make_problem()
        self.assertEqual(self.run_ok("run", *self.input_args(), "--out", self.path("o.npy")).stdout, "")


if __name__ == "__main__":
    unittest.main()
