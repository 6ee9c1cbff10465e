"""Where outputs go, and how the command ends when they cannot: streams, links, modes, names, signals, full devices."""
import json
import os
import resource
import signal
import stat
import subprocess
import threading
import time
import unittest

from command import ERROR, RINGATTN, Workspace, load, ringattn


class Outputs(Workspace):
    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def left(self):
        """Names in the folder that are neither inputs nor given by the test."""
        return sorted(name for name in os.listdir(self.folder) if "partial" in name or "previous" in name)

    def run_args(self, *args):
        return ["run", *self.input_args(), "--out", self.path("o.npy"), *map(str, args)]

    def assert_failed(self, done, *words):
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count(ERROR), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(self.left(), [])


class Streams(Outputs):
    """What is not a regular file of its own is written into, never replaced."""

    def setUp(self):
        super().setUp()
        self.make_problem()

    def test_report_into_the_log(self):
        for target in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", self.path("log")):
            with self.subTest(target=target):
                self.write("log", b"")
                before = os.stat(self.path("log"))
                with open(self.path("log"), "w", encoding="utf-8") as log:
                    log.write("before\n")
                    log.flush()
                    done = subprocess.run([RINGATTN, *self.run_args("--report", target, "--check", 3)], stdout=log,
                                          stderr=subprocess.PIPE, text=True, check=False)
                    log.write("after\n")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                text = self.read("log").decode()
                self.assertEqual(os.stat(self.path("log")).st_ino, before.st_ino)
                self.assertTrue(text.startswith("before\nchecked"), text)
                self.assertTrue(text.endswith("}\nafter\n"), text)
                self.assertIn("ranks", json.loads(text[text.index("{"):text.rindex("}") + 1]))
                self.assertEqual(self.left(), [])

    def test_report_into_another_descriptor(self):
        with open(self.path("log"), "w", encoding="utf-8") as log:
            inode = os.fstat(log.fileno()).st_ino
            self.run_ok(*self.run_args("--report", f"/dev/fd/{log.fileno()}"), pass_fds=[log.fileno()])
        self.assertEqual(os.stat(self.path("log")).st_ino, inode)
        json.loads(self.read("log"))

    def test_report_into_pipes_and_devices(self):
        json.loads(self.run_ok(*self.run_args("--report", "/dev/stdout")).stdout)
        self.run_ok(*self.run_args("--report", "/dev/null"))
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        os.mkfifo(self.path("pipe"))
        said = []
        reader = threading.Thread(target=lambda: said.append(self.read("pipe")))
        reader.start()
        self.run_ok(*self.run_args("--report", self.path("pipe")))
        reader.join()
        json.loads(said[0])
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))

    def test_report_that_cannot_be_written(self):
        self.assert_failed(ringattn(*self.run_args("--report", "/dev/full")), "--report:")
        self.assertFalse(os.path.exists(self.path("o.npy")))

    def test_arrays_need_files_of_their_own(self):
        with open(self.path("log"), "w", encoding="utf-8") as log:
            log.write("before\n")
            log.flush()
            for target in ("/dev/stdout", self.path("log"), "/dev/null"):
                done = subprocess.run([RINGATTN, "run", *self.input_args(), "--out", target], stdout=log,
                                      stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("--out:", done.stderr)
        self.assertEqual(self.read("log"), b"before\n")


class FullDevices(Outputs):
    """Output that does not arrive is a failure."""

    def to(self, path, *args):
        with open(path, "w", encoding="utf-8") as device:
            return subprocess.run([RINGATTN, *map(str, args)], stdout=device, stderr=subprocess.PIPE, text=True,
                                  check=False, timeout=60)

    def test_every_command(self):
        for args in (["plan"], ["plan", "--json"], ["info"], ["info", "--json"], ["--help"], ["--version"],
                     ["bench", "--seq", 32, "--repeat", 1], ["bench", "--seq", 32, "--repeat", 1, "--json"],
                     ["verify", "--seq", 16], ["run", "--help"]):
            with self.subTest(args=args):
                self.assert_failed(self.to("/dev/full", *args), "standard output")

    def test_check(self):
        self.make_problem()
        self.assert_failed(self.to("/dev/full", *self.run_args("--check", 3)), "standard output")
        self.assertFalse(os.path.exists(self.path("o.npy")))
        self.assertEqual(self.to("/dev/full", *self.run_args()).returncode, 0)

    def closed(self, *args):
        words = " ".join(f"'{word}'" for word in [RINGATTN, *args])
        return subprocess.run(["sh", "-c", words + " <&- >&-"], stderr=subprocess.PIPE, text=True, check=False)

    def test_closed_streams(self):
        """A file that took the place of a closed stream would get what is printed."""
        self.make_problem()
        inputs = {path: self.read(path) for path in self.inputs.values()}
        self.assert_failed(self.closed("plan"), "standard output")
        self.assert_failed(self.closed(*self.run_args("--check", 3)), "standard output")
        done = self.closed(*self.run_args())
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        closed = load(self.path("o.npy"))
        self.run_ok(*self.run_args())
        self.assertEqual(load(self.path("o.npy")), closed)
        for path, content in inputs.items():
            self.assertEqual(self.read(path), content)


class Places(Outputs):
    """Modes, links and names."""

    def setUp(self):
        super().setUp()
        self.make_problem()

    def mode(self, name):
        return stat.S_IMODE(os.stat(self.path(name)).st_mode)

    def test_modes(self):
        self.write("o.npy", b"")
        self.write("r.json", b"")
        os.chmod(self.path("o.npy"), 0o604)
        os.chmod(self.path("r.json"), 0o640)
        old = os.umask(0o027)
        self.addCleanup(os.umask, old)
        self.run_ok(*self.run_args("--report", self.path("r.json"), "--lse", self.path("l.npy")))
        self.assertEqual([self.mode(name) for name in ("o.npy", "r.json", "l.npy")], [0o604, 0o640, 0o640])

    @unittest.skipUnless(os.geteuid() == 0, "only root may give files away")
    def test_owners(self):
        self.write("o.npy", b"")
        os.chown(self.path("o.npy"), 1234, 2345)
        self.run_ok(*self.run_args())
        info = os.stat(self.path("o.npy"))
        self.assertEqual((info.st_uid, info.st_gid), (1234, 2345))

    @unittest.skipIf(os.geteuid() == 0, "root may write everything")
    def test_file_that_is_not_writable(self):
        self.write("o.npy", b"kept")
        os.chmod(self.path("o.npy"), 0o400)
        self.assertEqual(ringattn(*self.run_args()).returncode, 2)
        self.assertEqual(self.read("o.npy"), b"kept")

    def test_links(self):
        os.mkdir(self.path("there"))
        self.write("there/old.npy", b"")
        for link, to in (("a.npy", "there/old.npy"), ("b.npy", "there/absent.npy"), ("c.npy", "b.npy"),
                         ("d.npy", self.path("there/other.npy"))):
            os.symlink(to, self.path(link))
        for link, real in (("a.npy", "there/old.npy"), ("c.npy", "there/absent.npy"), ("d.npy", "there/other.npy")):
            with self.subTest(link=link):
                self.run_ok("run", *self.input_args(), "--out", self.path(link))
                self.assertTrue(os.path.islink(self.path(link)))
                self.assertTrue(stat.S_ISREG(os.lstat(self.path(real)).st_mode))
                self.assertEqual(load(self.path(link))[1], (1, 24, 2, 8))
        self.assertTrue(os.path.islink(self.path("b.npy")))

    def test_links_to_nowhere(self):
        os.symlink("loop.npy", self.path("loop.npy"))
        os.symlink("absent/o.npy", self.path("gone.npy"))
        for link in ("loop.npy", "gone.npy"):
            self.assert_refused(ringattn("run", *self.input_args(), "--out", self.path(link)), "--out:")
            self.assertTrue(os.path.islink(self.path(link)))

    def test_two_outputs_through_links_to_nothing_yet(self):
        os.symlink("same.npy", self.path("a.npy"))
        os.symlink("same.npy", self.path("b.npy"))
        done = ringattn("run", *self.input_args(), "--out", self.path("a.npy"), "--lse", self.path("b.npy"))
        self.assert_refused(done, "--lse:", "--out")

    def test_an_input_through_a_link(self):
        os.symlink("q.npy", self.path("link.npy"))
        before = self.read("q.npy")
        self.assert_refused(ringattn("run", *self.input_args(), "--out", self.path("link.npy")), "--out:", "--q")
        self.assertEqual(self.read("q.npy"), before)

    def test_names(self):
        for name in ("n" * 251 + ".npy", "two words.npy", "a\nline.npy", "-dash.npy", "percent%s%n.npy", "ü.npy",
                     "quote'\".npy", "back\\slash.npy"):
            with self.subTest(name=name):
                self.run_ok("run", *self.input_args(), f"--out={self.path(name)}")
                self.assertEqual(load(self.path(name))[1], (1, 24, 2, 8))
        self.run_ok("run", *self.input_args(), "--out=-dash", cwd=self.folder)
        self.assertTrue(os.path.exists(self.path("-dash")))
        done = ringattn("run", *self.input_args(), "--out", self.path("n" * 256))
        self.assert_refused(done, "--out:", "too long")

    def test_path_without_room_for_a_name_beside_it(self):
        """The target's own path fits; whatever happens, it happens before anything is computed."""
        folder = self.folder
        while len(folder) + 201 < 4060:
            folder = os.path.join(folder, "d" * 200)
            os.mkdir(folder)
        folder = os.path.join(folder, "e" * (4080 - len(folder)))
        os.mkdir(folder)
        self.assert_refused(ringattn("run", *self.input_args(), "--out", os.path.join(folder, "o")), "--out:")

    def test_errors_are_one_line(self):
        done = ringattn("run", *self.input_args(), "--out", self.path("absent\nfolder\x1b[31m/o.npy"))
        self.assert_refused(done, "--out:", "absent?folder?[31m")
        self.assert_refused(ringattn("bo\ngus"), "bo?gus")


class Ends(Outputs):
    """Whatever ends a run, no partial file stays; what was there before does."""

    LONG = ["--check", 1000000, "--threads", 1]

    def make_long(self, seq):
        for seed, name in enumerate("qkv"):
            self.run_ok("random", "--shape", f"1,{seq},1,64", "--seed", seed, "--out", self.path(name + ".npy"))
        self.inputs = {f"--{name}": self.path(name + ".npy") for name in "qkv"}

    def start(self, *args, **kwargs):
        """Starts a run and returns when its files are being written or checked."""
        job = subprocess.Popen([RINGATTN, *self.run_args(*args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, **kwargs)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        while not self.left() and job.poll() is None:
            time.sleep(0.002)
        return job

    def test_signals(self):
        self.make_long(8000)
        self.write("o.npy", b"earlier")
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU, signal.SIGUSR1,
                       signal.SIGPIPE, signal.SIGALRM, signal.SIGABRT):
            with self.subTest(signal=number):
                # Tests in the background are started with some of them ignored, and a child inherits that.
                job = self.start("--lse", self.path("l.npy"), *self.LONG,
                                 preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
                job.send_signal(number)
                job.wait(timeout=30)
                self.assertEqual(job.returncode, -number)
                self.assertEqual((self.left(), self.read("o.npy")), ([], b"earlier"))
                self.assertFalse(os.path.exists(self.path("l.npy")))

    def test_a_signal_that_is_ignored(self):
        self.make_long(1000)
        job = self.start(*self.LONG, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        job.send_signal(signal.SIGHUP)
        job.wait(timeout=30)
        self.assertEqual(job.returncode, 0)

    def test_processor_time(self):
        self.make_long(8000)
        limit = (1, 5)
        done = ringattn(*self.run_args(*self.LONG),
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit))
        self.assertEqual(done.returncode, -signal.SIGXCPU)
        self.assertEqual(self.left(), [])

    def test_file_size(self):
        self.make_problem(seq=100)
        for limit in (2000, 4000):  # below 1024 bytes some OpenMP libraries end the process themselves
            done = ringattn(*self.run_args("--report", self.path("r.json")),
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            self.assert_failed(done, "--out:", "large")
            self.assertFalse(os.path.exists(self.path("o.npy")) or os.path.exists(self.path("r.json")))
        done = ringattn("random", "--shape", "1,100,2,8", "--out", self.path("x.npy"),
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
        self.assert_failed(done, "--out:")

    def test_a_rename_that_fails_leaves_what_was_there(self):
        self.make_long(2500)
        self.write("o.npy", b"earlier")
        os.chmod(self.path("o.npy"), 0o604)
        job = self.start("--lse", self.path("l.npy"), "--report", self.path("r.json"), *self.LONG)
        os.mkdir(self.path("r.json"))
        said = job.communicate(timeout=60)[1]
        self.assertEqual(job.returncode, 1, said)
        self.assertIn("--report:", said)
        self.assertEqual((self.read("o.npy"), os.stat(self.path("o.npy")).st_mode & 0o777), (b"earlier", 0o604))
        self.assertFalse(os.path.exists(self.path("l.npy")))
        self.assertTrue(os.path.isdir(self.path("r.json")))
        self.assertEqual(self.left(), [])

    def test_a_reader_that_is_gone(self):
        self.make_problem()
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([RINGATTN, *self.run_args("--report", "/dev/stdout")], stdout=writing,
                              stderr=subprocess.PIPE, check=False)
        os.close(writing)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.left(), [])
        self.assertFalse(os.path.exists(self.path("o.npy")))


if __name__ == "__main__":
    unittest.main()
