"""What the command says about itself: report, plan, bench, verify, info, help."""
import json
import os
import re
import subprocess
import unittest

from command import MPIRUN, Workspace, load, ringattn

TRAFFIC = {"bytes_sent", "messages_sent", "bytes_planned", "messages_planned"}
BENCH = {"seq", "seq_k", "batch", "heads", "kv_heads", "dim", "dim_v", "dtype", "causal", "device", "kernel",
         "transport", "strategy", "layout", "ranks", "pass", "repeats", "seconds", "seconds_min", "gflops",
         "peak_fraction", "workspace_bytes", "bytes_sent"}
REPORT = {"version", "kernel", "transport", "strategy", "layout", "device", "dtype", "seconds", "ranks"}
RANK = {"rank", "tokens_q", "tokens_k", "pairs", "workspace_bytes", "forward", "backward"}


class Report(Workspace):
    def report(self, *args):
        self.run_ok("run", *self.input_args(), "--out", self.path("o.npy"), "--report", self.path("r.json"), *args)
        with open(self.path("r.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_keys(self):
        self.make_problem(seq=40)
        report = self.report("--ranks", 4, "--dout", self.dout, "--causal")
        self.assertLessEqual(REPORT, set(report))
        self.assertEqual(set(report["seconds"]), {"plan", "forward", "backward"})
        self.assertGreater(report["seconds"]["backward"], 0)
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1, 2, 3])
        for rank in report["ranks"]:
            self.assertLessEqual(RANK, set(rank))
            self.assertEqual((set(rank["forward"]), set(rank["backward"])), (TRAFFIC, TRAFFIC))

    def test_names_are_those_chosen(self):
        self.make_problem()
        report = self.report("--ranks", 2)
        self.assertEqual((report["transport"], report["device"], report["dtype"]), ("thread", "cpu", "f32"))
        self.assertIn(report["strategy"], ("ring", "pairwise", "allgather", "passq"))
        self.assertIn(report["layout"], ("contiguous", "zigzag", "striped"))
        self.assertNotEqual(report["kernel"], "auto")
        self.assertEqual(report["seconds"]["backward"], 0)
        asked = {"strategy": "pairwise", "layout": "striped", "kernel": "ref", "dtype": "f16"}
        chosen = self.report("--ranks", 2, *[f"--{key}={value}" for key, value in asked.items()])
        self.assertEqual({key: chosen[key] for key in asked}, asked)
        self.assertEqual(self.report("--transport", "self")["transport"], "self")

    def test_bytes_are_those_planned(self):
        self.make_problem(batch=2, seq=53, seq_k=61, heads=4, kv_heads=2)
        for strategy in ("ring", "pairwise", "allgather", "passq"):
            for layout in ("contiguous", "zigzag", "striped", "documents"):
                report = self.report("--ranks", 5, "--strategy", strategy, "--layout", layout, "--window", "9,2",
                                     "--dout", self.dout)
                with self.subTest(strategy=strategy, layout=layout):
                    for rank in report["ranks"]:
                        for way in ("forward", "backward"):
                            self.assertEqual(rank[way]["bytes_sent"], rank[way]["bytes_planned"])
                            self.assertEqual(rank[way]["messages_sent"], rank[way]["messages_planned"])
                    self.assertGreater(sum(rank["forward"]["bytes_sent"] for rank in report["ranks"]), 0)

    def test_sums(self):
        self.make_problem(batch=2, seq=53, heads=4)
        report = self.report("--ranks", 5, "--causal")
        self.assertEqual(sum(rank["tokens_q"] for rank in report["ranks"]), 53)
        self.assertEqual(sum(rank["tokens_k"] for rank in report["ranks"]), 53)
        self.assertEqual(sum(rank["pairs"] for rank in report["ranks"]), 2 * 4 * 53 * 54 // 2)

    def test_plan_foretells_it(self):
        self.make_problem(seq=53, heads=4, kv_heads=2, dim=8, dim_v=6)
        for backward in (False, True):
            flags = ["--ranks", "3", "--causal", "--strategy", "ring", "--threads", "1"]
            report = self.report(*flags, *(["--dout", self.dout] if backward else []))
            plan = self.run_json("plan", "--seq", 53, "--heads", 4, "--kv-heads", 2, "--dim", 8, "--dim-v", 6, *flags,
                                 "--json", *(["--backward"] if backward else []))
            for key in ("strategy", "layout", "kernel", "dtype"):
                self.assertEqual(plan[key], report[key])
            for foretold, happened in zip(plan["ranks"], report["ranks"], strict=True):
                for key in ("tokens_q", "tokens_k", "pairs", "workspace_bytes", "array_bytes"):
                    self.assertEqual(foretold[key], happened[key], key)
                for way in ("forward", "backward") if backward else ("forward",):
                    self.assertEqual(foretold[way]["bytes_planned"], happened[way]["bytes_sent"])
                    self.assertEqual(foretold[way]["messages_planned"], happened[way]["messages_sent"])

    def test_check_is_in_it(self):
        self.make_problem()
        report = self.report("--check", 4)
        self.assertLess(report["check"]["max_abs_error"], 1e-5)


class Plan(Workspace):
    def test_text(self):
        text = self.run_ok("plan", "--seq", 4096, "--ranks", 4, "--causal", "--strategy", "ring", "--layout", "zigzag",
                           "--backward").stdout
        for word in ("imbalance", "step 0", "step 3", "k0", ">1", "forward schedule", "backward schedule", "zigzag",
                     "workspace"):
            self.assertIn(word, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 160)

    def test_picture_shows_queries_that_visit(self):
        """With passq rank r computes with its own keys: first for its own queries, then for those that visit it."""
        problem = ("plan", "--seq", 300, "--seq-k", 9000, "--ranks", 3, "--backward", "--strategy")
        rows = [line for line in self.run_ok(*problem, "passq").stdout.splitlines() if re.match(r" +\d \|", line)]
        self.assertEqual(len(rows), 6)
        for row in rows:
            rank = int(row.split("|")[0])
            computed = re.findall(r"(?:q(\d) )?k(\d) \d+%", row)
            self.assertEqual(computed[0], ("", str(rank)))
            self.assertEqual({int(keys) for _, keys in computed}, {rank})
            self.assertEqual({int(queries) for queries, _ in computed[1:]}, {0, 1, 2} - {rank})
        self.assertIn("visit", self.run_ok(*problem, "passq").stdout)
        self.assertNotIn("visit", self.run_ok(*problem, "ring").stdout)

    def test_many_ranks_are_not_all_shown(self):
        text = self.run_ok("plan", "--seq", 4096, "--ranks", 64, "--strategy", "ring").stdout
        self.assertIn("more ranks", text)
        self.assertIn("more steps", text)
        self.assertLess(len(text.splitlines()), 60)
        self.assertLessEqual(max(map(len, text.splitlines())), 200)
        self.assertEqual(len(self.run_json("plan", "--seq", 4096, "--ranks", 64, "--json")["ranks"]), 64)

    def test_balance(self):
        flags = ["plan", "--seq", 8192, "--ranks", 4, "--causal", "--json"]
        self.assertLess(self.run_json(*flags, "--layout", "zigzag")["imbalance"], 1.02)
        self.assertGreater(self.run_json(*flags, "--layout", "contiguous")["imbalance"], 1.5)

    def test_window_sends_less(self):
        flags = ["plan", "--seq", 8192, "--ranks", 8, "--causal", "--layout=contiguous", "--strategy=ring", "--json"]
        whole, few = (sum(rank["forward"]["bytes_planned"] for rank in plan["ranks"])
                       for plan in (self.run_json(*flags), self.run_json(*flags, "--window", "128,0")))
        self.assertLess(few * 8, whole)

    def test_dilation_beside_the_dense_problem(self):
        flags = ["plan", "--ranks", 2, "--heads", 2, "--dim", 8]
        plan = self.run_json(*flags, "--seq", 4096, "--dilated", "256:1,4096:16", "--json")
        self.assertEqual(plan["dense"]["pairs"], 2 * 4096 ** 2)
        self.assertLess(plan["pairs"] * 8, plan["dense"]["pairs"])
        # Of 2^33 tokens the dense problem has more pairs than can be counted.
        flags += ["--seq", 2 ** 33, "--dilated", f"{2 ** 33}:{2 ** 25}"]
        self.assertNotIn("dense", self.run_json(*flags, "--json"))
        self.assertNotIn("dense", self.run_ok(*flags).stdout)

    def test_more_ranks_than_tokens(self):
        plan = self.run_json("plan", "--seq", 3, "--ranks", 7, "--json")
        self.assertEqual(sum(rank["tokens_q"] for rank in plan["ranks"]), 3)


class Bench(Workspace):
    FLAGS = ["bench", "--dim", "8", "--repeat", "2"]

    def test_keys(self):
        rows = self.run_json(*self.FLAGS, "--seq", 64, "--backward", "--json")
        self.assertEqual([row["pass"] for row in rows], ["forward", "backward"])
        for row in rows:
            self.assertLessEqual(BENCH | {"cpu_seconds", "imbalance"}, set(row))
            self.assertEqual(row["repeats"], 2)
            self.assertGreaterEqual(row["seconds"], row["seconds_min"])
            self.assertGreater(row["peak_fraction"], 0)
            self.assertGreater(row["gflops"], 0)

    def test_sweeps(self):
        rows = self.run_json(*self.FLAGS, "--seq", "32,48", "--heads", "1,2", "--ranks", "1,3", "--dtype", "f32,bf16",
                             "--strategy", "ring,allgather", "--json")
        swept = ("seq", "heads", "ranks", "dtype", "strategy")
        self.assertEqual(len({tuple(row[key] for key in swept) for row in rows}), 32)
        self.assertEqual(len(rows), 32)
        self.assertEqual({row["kv_heads"] for row in rows}, {1, 2})

    def test_table(self):
        lines = self.run_ok(*self.FLAGS, "--seq", "32,48").stdout.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("gflops", lines[0])

    def test_bytes_of_all_ranks(self):
        flags = ["--seq", "64", "--ranks", "4", "--dim", "8", "--strategy", "ring", "--layout", "contiguous", "--json"]
        row = self.run_json("bench", *flags, "--repeat", 1)[0]
        plan = self.run_json("plan", *flags)
        self.assertEqual(row["bytes_sent"], sum(rank["forward"]["bytes_planned"] for rank in plan["ranks"]))


class Verify(Workspace):
    def test_types(self):
        for dtype in ("f64", "f32", "bf16", "f16"):
            text = self.run_ok("verify", "--seq", 100, "--ranks", 3, "--dtype", dtype, "--causal").stdout
            for name in ("o", "lse", "dq", "dk", "dv"):
                self.assertIn(f" {name} ", text)

    def test_patterns(self):
        self.run_ok("verify", "--seq", 57, "--seq-k", 64, "--heads", 4, "--kv-heads", 1, "--dim", 7, "--dim-v", 3,
                    "--batch", 2, "--window", "9,4", "--ranks", 4, "--layout", "striped", "--strategy", "pairwise")
        self.run_ok("verify", "--seq", 57, "--cu-seqlens", "0,1,30,57", "--causal", "--ranks", 3, "--dtype", "f64")
        self.run_ok("verify", "--seq", 9, "--seq-k", 4, "--causal", "--ranks", 12)

    def test_large_problems_are_sampled(self):
        self.assertIn("sampled", self.run_ok("verify", "--seq", 4100, "--heads", 1, "--ranks", 3).stdout)

    def test_out_of_tolerance(self):
        """Scores in the thousands have an f32 rounding error of 1e-4: no softmax over them is exact."""
        done = ringattn("verify", "--seq", 200, "--scale", 300, "--ranks", 2)
        self.assertEqual(done.returncode, 1)
        self.assertIn("out of tolerance", done.stdout)
        self.assertTrue(done.stderr.startswith("ringattn: error: "))


class Others(Workspace):
    def test_help(self):
        for args in (["--help"], ["-h"], ["help"]):
            text = self.run_ok(*args).stdout
            for command in ("run", "plan", "bench", "verify", "info", "random"):
                self.assertIn(f"  {command} ", text)
        for command in ("run", "plan", "bench", "verify", "info", "random"):
            for flag in ("--help", "-h"):
                self.assertTrue(self.run_ok(command, flag).stdout.startswith(f"usage: ringattn {command}"))

    def test_version(self):
        version = self.run_ok("--version").stdout.split()
        self.assertEqual(version[0], "ringattn")
        self.assertEqual(self.run_json("info", "--json")["version"], version[1])

    def test_info(self):
        info = self.run_json("info", "--json")
        self.assertLessEqual({"build", "system", "cpu", "cores", "cpu_features", "kernels", "transports", "libraries",
                              "devices", "environment"}, set(info))
        self.assertIn({"name": "ref", "usable": True}, info["kernels"])
        self.assertLessEqual({"self", "thread"}, set(info["transports"]))
        self.assertRegex(info["build"]["compiler"], r"^(gcc|clang) [0-9]+\.")
        self.assertEqual(info["cores"], len(os.sched_getaffinity(0)))
        self.assertIn(os.uname().release, info["system"])

    def test_info_names_the_libraries_behind_the_transports(self):
        info = self.run_json("info", "--json")
        for name in ("mpi", "ucx"):
            self.assertEqual(name in info["transports"], info["libraries"][name] is not None, name)
        self.assertEqual(info["build"]["mpi"], info["libraries"]["mpi"] is not None)
        if MPIRUN and "Open MPI" in (info["libraries"]["mpi"] or ""):
            says = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, timeout=60).stdout
            version = re.search(r"Open MPI v([0-9.]+)", info["libraries"]["mpi"])[1]
            self.assertIn(version, says)
        if not info["build"]["ucx"]:
            self.assertIsNone(info["libraries"]["ucx"])

    def test_info_as_text_has_what_json_has(self):
        info, text = self.run_json("info", "--json"), self.run_ok("info").stdout
        for said in (info["version"], info["build"]["compiler"], info["build"]["type"], info["system"],
                     *info["transports"], *info["cpu_features"], *(kernel["name"] for kernel in info["kernels"]),
                     *filter(None, info["libraries"].values()), *info["environment"]):
            self.assertIn(said, text)

    def test_info_shows_settings_and_no_secret(self):
        environment = {**os.environ, "UCX_TLS": "tcp,self", "RINGATTN_JOB_KEY": "do-not-tell"}
        for form in ([], ["--json"]):
            said = ringattn("info", *form, env=environment).stdout
            self.assertIn("tcp,self", said)
            self.assertIn("(set)", said)
            self.assertNotIn("do-not-tell", said)

    def test_random_is_normal_and_repeatable(self):
        for name, seed in (("a", 5), ("b", 5), ("c", 6)):
            self.run_ok("random", "--shape", "2,50,4,16", "--seed", seed, "--out", self.path(name + ".npy"))
        a, b, c = (load(self.path(name + ".npy")) for name in "abc")
        self.assertEqual(a[:2], ("<f4", (2, 50, 4, 16)))
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)
        mean = sum(a[2]) / len(a[2])
        variance = sum(x * x for x in a[2]) / len(a[2]) - mean * mean
        self.assertLess(abs(mean), 0.05)
        self.assertLess(abs(variance - 1), 0.1)
        self.run_ok("random", "--shape", "1,3,1,2", "--dtype", "f64", "--out", self.path("d.npy"))
        self.assertEqual(load(self.path("d.npy"))[0], "<f8")


if __name__ == "__main__":
    unittest.main()
