"""Running the command under test, and .npy files without numpy."""
import array
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import unittest

RINGATTN = os.environ.get("RINGATTN", "ringattn")
MPIRUN = os.environ.get("RINGATTN_MPIRUN", "")
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
ERROR = "ringattn: error: "

MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none", "OMP_NUM_THREADS": "1",
    "LSAN_OPTIONS": "detect_leaks=0",  # MPI itself leaks
    "ASAN_OPTIONS": "detect_leaks=0",
}


def ringattn(*args, **kwargs):
    """Runs the command; never raises for its exit code."""
    return subprocess.run([RINGATTN, *map(str, args)], capture_output=True, text=True, timeout=120, **kwargs)


def mpirun(processes, *args):
    return subprocess.run([MPIRUN, "-n", str(processes), RINGATTN, *map(str, args)], capture_output=True, text=True,
                          timeout=120, env={**os.environ, **MPI_ENVIRONMENT})


def npy_bytes(shape, data, descr="<f4", order="False", version=1, header=None):
    """data: the raw bytes. header: replaces the whole dictionary."""
    text = header
    if text is None:
        lengths = "".join(f"{n}, " for n in shape)
        text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({lengths}), }}"
    prefix = 10 if version == 1 else 12
    text += " " * (-(prefix + len(text) + 1) % 64) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


CODES = {"<f2": "e", "<f4": "f", "<f8": "d"}


def pack(values, descr="<f4"):
    return struct.pack(f"<{len(values)}{CODES[descr]}", *values)


def load(path):
    """(descr, shape, values) of a file as numpy would write it."""
    with open(path, "rb") as file:
        raw = file.read()
    assert raw[:6] == b"\x93NUMPY" and raw[6] == 1, path
    length = struct.unpack_from("<H", raw, 8)[0]
    assert (10 + length) % 64 == 0 and raw[9 + length:10 + length] == b"\n", path
    header = eval(raw[10:10 + length].decode(), {"__builtins__": {}})
    assert not header["fortran_order"]
    values = array.array({"<f4": "f", "<f8": "d"}[header["descr"]], raw[10 + length:])
    count = 1
    for n in header["shape"]:
        count *= n
    assert len(values) == count, path
    return header["descr"], tuple(header["shape"]), values


def furthest(a, b):
    """The largest difference of two lists; equal infinities do not differ."""
    return max((0.0 if x == y else abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)


class Workspace(unittest.TestCase):
    """A test in a folder of its own."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ringattn-cli-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def tensor(self, name, shape, seed=0, descr="<f4", version=1):
        rng = random.Random(f"{name} {seed}")
        count = shape[0] * shape[1] * shape[2] * shape[3]
        data = pack([rng.gauss(0, 1) for _ in range(count)], descr)
        return self.write(name, npy_bytes(shape, data, descr, version=version))

    def make_problem(self, batch=1, seq=24, seq_k=None, heads=2, kv_heads=None, dim=8, dim_v=None, descr="<f4"):
        """q, k, v and dout as files; returns the arguments that name the inputs and --out."""
        seq_k, kv_heads, dim_v = seq_k or seq, kv_heads or heads, dim_v or dim
        self.inputs = {"--q": self.tensor("q.npy", (batch, seq, heads, dim), descr=descr),
                       "--k": self.tensor("k.npy", (batch, seq_k, kv_heads, dim), descr=descr),
                       "--v": self.tensor("v.npy", (batch, seq_k, kv_heads, dim_v), descr=descr)}
        self.dout = self.tensor("dout.npy", (batch, seq, heads, dim_v), descr=descr)

    def input_args(self, **replaced):
        args = []
        for flag, path in {**self.inputs, **replaced}.items():
            args += [flag, path]
        return args

    def run_ok(self, *args, **kwargs):
        done = ringattn(*args, **kwargs)
        self.assertEqual((done.returncode, done.stderr), (0, ""), f"{args}\n{done.stderr}")
        return done

    def run_json(self, *args):
        return json.loads(self.run_ok(*args).stdout)

    def outputs(self, tag, backward=True):
        """Arguments that ask for every output, under names with that tag."""
        names = ["out", "lse"] + (["dq", "dk", "dv"] if backward else [])
        self.names = {name: self.path(f"{tag}-{name}.npy") for name in names}
        args = ["--dout", self.dout] if backward else []
        for name, path in self.names.items():
            args += [f"--{name}", path]
        return args

    def load_outputs(self):
        return {name: load(path)[2] for name, path in self.names.items()}

    def assert_refused(self, done, *words, code=2):
        """A sentence on stderr that has these words, this exit code, nothing on stdout, and no file left."""
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertTrue(done.stderr.startswith(ERROR), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "")
        for name in os.listdir(self.folder):
            self.assertFalse(name == "out.npy" or "partial" in name, name)
