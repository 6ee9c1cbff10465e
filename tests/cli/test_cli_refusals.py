"""Everything that is refused: exit 2, one sentence that names the argument, no output file."""
import json
import os
import unittest

from command import ERROR, Workspace, npy_bytes, pack, ringattn


class WrongOptions(Workspace):
    def setUp(self):
        super().setUp()
        self.make_problem()

    def refuse_run(self, *args, words=()):
        done = ringattn("run", *self.input_args(), "--out", self.path("out.npy"), *args)
        self.assert_refused(done, *words)

    def test_values(self):
        for args, word in [
            (["--ranks", "0"], "--ranks"), (["--ranks", "-1"], "--ranks"), (["--ranks", "x"], "--ranks"),
            (["--ranks", "4097"], "--ranks"), (["--ranks", "2.5"], "--ranks"), (["--ranks", ""], "--ranks"),
            (["--ranks", "99999999999999999999"], "--ranks"), (["--ranks", "2,3"], "--ranks"), (["--ranks"], "--ranks"),
            (["--ranks", " 2"], "--ranks"), (["--ranks", "+2"], "--ranks"), (["--ranks", "0x2"], "--ranks"),
            (["--threads", "0"], "--threads"), (["--check", "0"], "--check"),
            (["--window", "-2,0"], "--window"), (["--window", "0,-5"], "--window"), (["--window", "3"], "--window"),
            (["--window", "1,2,3"], "--window"), (["--window", "a,b"], "--window"), (["--window", "1,"], "--window"),
            (["--scale", "nan"], "--scale"), (["--scale", "inf"], "--scale"), (["--scale", "1e999"], "--scale"),
            (["--scale", "1x"], "--scale"), (["--scale", ""], "--scale"),
            (["--scale", "1e-50"], "--scale"), (["--scale", "-1e39"], "--scale"),
            (["--timeout", "0"], "--timeout"), (["--timeout", "-1"], "--timeout"), (["--timeout", "soon"], "--timeout"),
            (["--causal=yes"], "--causal"), (["--out", ""], "--out"), (["--lse", "--causal"], "--lse"),
        ]:
            with self.subTest(args=args):
                self.refuse_run(*args, words=[word])

    def test_names_list_the_choices(self):
        for flag, choices in [("--layout", ["contiguous", "zigzag", "striped", "documents"]),
                              ("--strategy", ["ring", "pairwise", "allgather", "passq"]),
                              ("--dtype", ["f64", "f32", "bf16", "f16"]),
                              ("--kernel", ["auto", "ref"]), ("--transport", ["thread", "self", "mpi", "nccl"]),
                              ("--device", ["cpu", "cuda"])]:
            with self.subTest(flag=flag):
                self.refuse_run(flag, "bogus", words=[flag, "bogus", *choices])

    def test_documents(self):
        for args, word in [
            (["--cu-seqlens", "1,24"], "--cu-seqlens"), (["--cu-seqlens", "0,10,5,24"], "--cu-seqlens"),
            (["--cu-seqlens", "0,23"], "--cu-seqlens"), (["--cu-seqlens", "0,10,10,9,24"], "--cu-seqlens"),
            (["--cu-seqlens", "0,25"], "--cu-seqlens"), (["--cu-seqlens", "0"], "--cu-seqlens"),
            (["--cu-seqlens", "0,-3,24"], "--cu-seqlens"), (["--cu-seqlens", ""], "--cu-seqlens"),
            (["--cu-seqlens-k", "0,24"], "--cu-seqlens"),
            (["--cu-seqlens", "0,4,24", "--cu-seqlens-k", "0,24"], "--cu-seqlens-k"),
            (["--cu-seqlens", "0,4,24", "--cu-seqlens-k", "0,4,23"], "--cu-seqlens-k"),
        ]:
            with self.subTest(args=args):
                self.refuse_run(*args, words=[word])

    def test_documents_of_a_batch(self):
        self.make_problem(batch=2)
        self.refuse_run("--cu-seqlens", "0,24", words=["--cu-seqlens", "batch"])

    def test_documents_of_unequal_lengths_need_both(self):
        self.make_problem(seq=24, seq_k=30)
        self.refuse_run("--cu-seqlens", "0,4,24", words=["--cu-seqlens"])

    def test_devices(self):
        for args, words in [
            (["--transport", "nccl"], ["--transport", "--device cuda"]),
            (["--device", "cuda:"], ["--device"]), (["--device", "cuda:-1"], ["--device"]),
            (["--device", "cuda:x"], ["--device"]), (["--device", "cuda:1000"], ["--device"]),
            (["--device", "gpu"], ["--device", "cuda:N"]), (["--kernel", "ref,"], ["--kernel"]),
        ]:
            with self.subTest(args=args):
                self.refuse_run(*args, words=words)

    def test_a_gpu_that_is_not_there(self):
        if len(json.loads(ringattn("info", "--json").stdout)["devices"]) > 1:
            self.skipTest("there is one")
        for args in [["--device", "cuda"], ["--device", "cuda:0"], ["--device", "cuda", "--transport", "nccl"]]:
            with self.subTest(args=args):
                self.refuse_run(*args, words=["--device cuda", "CUDA"])

    def test_dilation(self):
        for value in ["", "4", "4:", ":2", "4:0", "0:1", "-4:1", "4:1,", "4:1;8:2", "4:1:2", "4:x", "4:1,8"]:
            with self.subTest(value=value):
                self.refuse_run("--dilated", value, words=["--dilated"])
        self.refuse_run("--dilated", ",".join(["4:1"] * 65), words=["--dilated", "64"])
        for flag, value in [("--dilated-heads", "some"), ("--dilated-offset", "tail"), ("--dilated-combine", "sum")]:
            self.refuse_run("--dilated", "4:1", flag, value, words=[flag, value])
        for flag, value in [("--dilated-heads", "all"), ("--dilated-offset", "head"), ("--dilated-combine", "lse")]:
            self.refuse_run(flag, value, words=[flag, "--dilated"])

    def test_transport_self_has_one_rank(self):
        self.refuse_run("--transport", "self", "--ranks", "2", words=["--ranks"])

    def test_unknown_options(self):
        self.refuse_run("--bogus", "1", words=["--bogus", "--causal"])
        self.refuse_run("-q", words=["-q"])
        self.refuse_run("stray", words=["stray"])
        self.refuse_run("--seq", "12", words=["--seq"])
        self.refuse_run("--json", words=["--json"])

    def test_missing_arguments(self):
        for missing in ["--q", "--k", "--v"]:
            args = [arg for flag, path in self.inputs.items() if flag != missing for arg in (flag, path)]
            self.assert_refused(ringattn("run", *args, "--out", self.path("out.npy")), missing)
        self.assert_refused(ringattn("run", *self.input_args()), "--out")

    def test_gradients_need_dout(self):
        for flag in ["--dq", "--dk", "--dv"]:
            self.refuse_run(flag, self.path("gradient.npy"), words=[flag, "--dout"])
            self.assertFalse(os.path.exists(self.path("gradient.npy")))

    def test_commands(self):
        self.assert_refused(ringattn("bogus"), "bogus", "run", "plan", "bench", "verify", "info")
        self.assert_refused(ringattn(), "command")
        self.assert_refused(ringattn("plan", "--kv-heads", 3, "--heads", 8), "--kv-heads")
        self.assert_refused(ringattn("plan", "--dim", 257), "--dim")
        self.assert_refused(ringattn("plan", "--seq", 0), "--seq")
        self.assert_refused(ringattn("plan", "--seq", "64,128"), "--seq")
        self.assert_refused(ringattn("plan", "--seq", 9, "--cu-seqlens", "0,8"), "--cu-seqlens")
        self.assert_refused(ringattn("bench", "--kv-heads", 3, "--heads", "3,8", "--json"), "--kv-heads")
        self.assert_refused(ringattn("verify", "--ranks", "1,2"), "--ranks")
        self.assert_refused(ringattn("info", "--ranks", "1"), "--ranks")
        self.assert_refused(ringattn("random", "--shape", "1,2,3", "--out", self.path("out.npy")), "--shape")
        self.assert_refused(ringattn("random", "--shape", "1,2,3,4"), "--out")
        done = ringattn("random", "--shape", "1,2,3,4", "--dtype", "bf16", "--out", self.path("out.npy"))
        self.assert_refused(done, "--dtype")

    def test_numbers_beyond_the_library(self):
        for flag, most in [("--batch", 2 ** 20), ("--seq", 2 ** 40), ("--seq-k", 2 ** 40), ("--heads", 2 ** 16),
                           ("--kv-heads", 2 ** 16)]:
            with self.subTest(flag=flag):
                self.assert_refused(ringattn("plan", flag, most + 1), flag + ":", str(most))
        self.assert_refused(ringattn("verify", "--heads", 2 ** 16 + 1), "--heads:")

    def test_problems_too_large_to_count(self):
        huge = str(2 ** 48)
        done = ringattn("plan", "--seq", 2 ** 40, "--batch", 2 ** 20, "--heads", 2 ** 16)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertTrue(done.stderr.startswith(ERROR), done.stderr)
        done = ringattn("random", "--shape", ",".join([huge] * 4), "--out", self.path("out.npy"))
        self.assert_refused(done, "--shape")


class WrongFiles(Workspace):
    SHAPE = (1, 24, 2, 8)

    def setUp(self):
        super().setUp()
        self.make_problem()
        self.data = bytes(4 * 24 * 2 * 8)

    def refuse_file(self, content, *words):
        for flag in ["--q", "--k", "--v", "--dout"]:
            with self.subTest(flag=flag, words=words):
                bad = self.write("bad.npy", content)
                files = {**self.inputs, "--dout": self.dout, flag: bad}
                args = [arg for pair in files.items() for arg in pair]
                self.assert_refused(ringattn("run", *args, "--out", self.path("out.npy")), flag + ":", *words)

    def test_not_npy(self):
        self.refuse_file(b"")
        self.refuse_file(b"hello, world, this is text")
        self.refuse_file(b"\x93NUMPY")
        self.refuse_file(b"\x93NUMPY\x07\x00" + bytes(100), "version")
        self.refuse_file(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(100))

    def test_truncated(self):
        whole = npy_bytes(self.SHAPE, self.data)
        self.refuse_file(whole[:-1], "truncated")
        self.refuse_file(whole[:130], "truncated")
        self.refuse_file(whole[:60], "truncated")
        self.refuse_file(whole[:11], "truncated")

    def test_trailing_bytes(self):
        self.refuse_file(npy_bytes(self.SHAPE, self.data) + b"x", "behind")

    def test_orders_and_types(self):
        self.refuse_file(npy_bytes(self.SHAPE, self.data, order="True"), "Fortran")
        self.refuse_file(npy_bytes(self.SHAPE, self.data, descr=">f4"), ">f4")
        self.refuse_file(npy_bytes(self.SHAPE, self.data, descr="<i4"), "<i4")
        self.refuse_file(npy_bytes(self.SHAPE, self.data * 2, descr="<c8"), "<c8")
        records = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 24, 2, 8), }"
        self.refuse_file(npy_bytes(self.SHAPE, self.data, header=records), "records")

    def test_shapes(self):
        self.refuse_file(npy_bytes((24, 2, 8), self.data), "dimensions")
        self.refuse_file(npy_bytes((1, 1, 24, 2, 8), self.data), "dimensions")
        self.refuse_file(npy_bytes((), bytes(4)), "dimensions")
        self.refuse_file(npy_bytes((1, 0, 2, 8), b""), "no elements")
        self.refuse_file(npy_bytes((1, 2 ** 40, 2 ** 20, 2 ** 10), self.data), "too large")
        self.refuse_file(npy_bytes((1, 2 ** 70, 1, 1), self.data), "too large")
        self.refuse_file(npy_bytes((1, 2 ** 62, 0, 2 ** 62), self.data))

    def test_shapes_beyond_the_library(self):
        for shape in [(2 ** 20 + 1, 1, 1, 1), (1, 1, 2 ** 16 + 1, 1)]:
            with self.subTest(shape=shape):
                file = self.write("bad.npy", npy_bytes(shape, bytes(4 * shape[0] * shape[2])))
                done = ringattn("run", "--q", file, "--k", file, "--v", file, "--out", self.path("out.npy"))
                self.assert_refused(done, "--q:", str(max(shape)))

    def test_garbled_headers(self):
        for header in ["", "{}", "{'descr': '<f4'}", "[1, 2]",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 24, 2, -8), }",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1 24 2 8), }",
                       "{'descr': '<f4', 'fortran_order': 0, 'shape': (1, 24, 2, 8), }",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 24, 2, 8), 'x': 1}",
                       "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1, 24, 2, 8), }",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 24, 2, 8), } junk",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 24, 2, 8)",
                       "{'descr': '<f4\\x00', 'fortran_order': False, 'shape': (1, 24, 2, 8), }"]:
            self.refuse_file(npy_bytes(None, self.data, header=header))

    def test_files_that_are_none(self):
        os.mkdir(self.path("folder"))
        os.mkfifo(self.path("pipe"))
        for path in [self.path("absent.npy"), self.path("folder"), self.path("pipe"), "/dev/zero"]:
            args = self.input_args(**{"--k": path})
            self.assert_refused(ringattn("run", *args, "--out", self.path("out.npy")), "--k:")

    def test_shapes_that_disagree(self):
        for flag, shape in [("--k", (2, 24, 2, 8)), ("--k", (1, 24, 2, 4)), ("--k", (1, 24, 3, 8)),
                            ("--k", (1, 23, 2, 8)),
                            ("--v", (2, 24, 2, 8)), ("--v", (1, 23, 2, 8)), ("--v", (1, 24, 1, 8)),
                            ("--dout", (1, 23, 2, 8)), ("--dout", (1, 24, 2, 9)), ("--dout", (1, 24, 1, 8)),
                            ("--dout", (2, 24, 2, 8)), ("--q", (1, 24, 2, 300)), ("--v", (1, 24, 2, 300))]:
            with self.subTest(flag=flag, shape=shape):
                count = shape[0] * shape[1] * shape[2] * shape[3]
                bad = self.write("bad.npy", npy_bytes(shape, pack([0.0] * count)))
                args = self.input_args(**{"--dout": self.dout, flag: bad})
                named = "--v:" if (flag, shape) == ("--k", (1, 23, 2, 8)) else "--k:" if flag == "--q" else flag + ":"
                self.assert_refused(ringattn("run", *args, "--out", self.path("out.npy")), named)


class WrongTargets(Workspace):
    def setUp(self):
        super().setUp()
        self.make_problem()

    def refuse(self, *args, words=()):
        before = sorted(os.listdir(self.folder))
        done = ringattn("run", *self.input_args(), *args)
        self.assert_refused(done, *words)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_not_regular_files(self):
        os.mkdir(self.path("folder"))
        os.mkfifo(self.path("pipe"))
        self.refuse("--out", "/dev/null", words=["--out:"])
        for target in [self.path("folder"), self.path("pipe"), self.path("absent/o.npy"),
                       self.path("q.npy/o.npy"), self.path("o/")]:
            with self.subTest(target=target):
                self.refuse("--out", target, words=["--out:"])
                self.refuse("--out", self.path("o.npy"), "--report", target, words=["--report:"])

    def test_two_outputs_of_one_path(self):
        other = os.path.join(self.folder, ".", "o.npy")
        self.refuse("--out", self.path("o.npy"), "--lse", self.path("o.npy"), words=["--lse:", "--out"])
        self.refuse("--out", self.path("o.npy"), "--lse", other, words=["--lse:", "--out"])
        self.refuse("--out", self.path("o.npy"), "--report", self.path("o.npy"), words=["--report:"])

    def test_two_outputs_through_a_link(self):
        self.write("real.npy", b"kept")
        os.symlink(self.path("real.npy"), self.path("link.npy"))
        self.refuse("--out", self.path("real.npy"), "--lse", self.path("link.npy"), words=["--lse:"])
        with open(self.path("real.npy"), "rb") as file:
            self.assertEqual(file.read(), b"kept")

    def test_inputs_are_not_overwritten(self):
        self.refuse("--out", self.inputs["--q"], words=["--out:", "--q"])

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_folder_that_is_not_writable(self):
        os.mkdir(self.path("locked"), 0o500)
        self.refuse("--out", self.path("locked/o.npy"), words=["--out:"])

    def test_earlier_result_survives_a_refusal(self):
        self.write("o.npy", b"earlier")
        self.refuse("--out", self.path("o.npy"), "--ranks", "0", words=["--ranks"])
        self.refuse("--out", self.path("o.npy"), "--cu-seqlens", "0,5", words=["--cu-seqlens"])
        with open(self.path("o.npy"), "rb") as file:
            self.assertEqual(file.read(), b"earlier")


if __name__ == "__main__":
    unittest.main()
