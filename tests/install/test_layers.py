"""tools/check_layers.py accepts what the design allows and refuses what it forbids, on small trees made for it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"

# The targets that the includes below mean.
HEADERS = ("include/ringattn/ringattn.h", "include/ringattn/mpi.h", "src/base/status.h", "src/core/span.h",
           "src/kernel/kernel.h", "src/kernel/ref/loops.h", "src/transport/link.h", "src/device/device.h",
           "src/plan/sizes.h", "src/exec/steps.h", "cli/options.h", "include/ringattn/cuda.h", "src/device/cuda/gpu.h",
           "src/transport/comm.h", "src/transport/comm_state.h", "src/transport/host.h")

ALLOWED = (
    ("src/core/a.c", '"base/status.h"'), ("src/core/a.c", "<stdint.h>"), ("src/core/a.c", "<ringattn/ringattn.h>"),
    ("src/kernel/a.c", '"core/span.h"'), ("src/kernel/a.c", '"device/device.h"'), ("src/plan/a.c", '"kernel/kernel.h"'),
    ("src/exec/a.c", '"transport/link.h"'), ("src/api/a.c", '"exec/steps.h"'), ("src/base/a.c", "<pthread.h>"),
    ("src/transport/mpi/a.c", "<ringattn/mpi.h>"), ("src/transport/mpi/a.c", "<mpi.h>"), ("cli/a.c", '"options.h"'),
    ("examples/a.c", "<mpi.h>"), ("tests/a.c", '"kernel/ref/loops.h"'), ("tests/a.c", '"options.h"'),
    ("src/device/cuda/a.c", "<cuda_runtime_api.h>"), ("src/transport/nccl/a.c", "<nccl.h>"),
    ("src/transport/nccl/a.c", '"device/cuda/gpu.h"'), ("src/api/cuda/a.c", "<ringattn/cuda.h>"),
    ("src/transport/nccl/a.c", '"transport/host.h"'), ("src/exec/a.c", '"transport/comm.h"'),
    ("src/transport/a.c", '"transport/comm_state.h"'), ("tests/a.c", '"transport/comm_state.h"'),
)

FORBIDDEN = (
    ("src/base/a.c", '"core/span.h"'), ("src/core/a.c", '"kernel/kernel.h"'), ("src/core/a.c", "<pthread.h>"),
    ("src/schedule/a.c", "<unistd.h>"), ("src/schedule/a.c", '"plan/sizes.h"'), ("src/core/a.c", "<mpi.h>"),
    ("src/core/a.c", "<cuda_runtime.h>"), ("src/kernel/a.c", '"transport/link.h"'),
    ("src/transport/a.c", '"kernel/kernel.h"'), ("src/plan/a.c", '"kernel/ref/loops.h"'),
    ("src/plan/a.c", '"exec/steps.h"'), ("src/reference/a.c", '"kernel/kernel.h"'), ("src/exec/a.c", "<mpi.h>"),
    ("src/transport/mpi/a.c", '"base/status.h"'), ("src/transport/a.c", "<ringattn/mpi.h>"),
    ("cli/a.c", '"core/span.h"'), ("cli/a.c", '"../src/core/span.h"'), ("examples/a.c", '"options.h"'),
    ("src/api/a.c", '"nowhere.h"'), ("src/api/a.c", "<ringattn/nowhere.h>"), ("src/misc/a.c", '"base/status.h"'),
    ("src/transport/a.c", '"device/cuda/gpu.h"'), ("src/api/a.c", "<ringattn/cuda.h>"),
    ("src/device/cuda/a.c", '"kernel/kernel.h"'), ("src/kernel/cuda/a.cu", '"transport/link.h"'),
    ("src/transport/nccl/a.c", '"transport/comm.h"'), ("src/api/cuda/a.c", '"transport/comm.h"'),
    ("src/transport/nccl/a.c", '"transport/comm_state.h"'), ("src/exec/a.c", '"transport/comm_state.h"'),
    ("src/api/a.c", '"../cli/options.h"'), ("include/ringattn/ringattn.h", '"../../src/base/status.h"'),
)


def run_checker(files):
    """files: {path: text}, laid over HEADERS. Returns (exit status, output)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**dict.fromkeys(HEADERS, ""), **files}.items():
            file = pathlib.Path(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, CHECKER, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class Layers(unittest.TestCase):
    def test_allowed(self):
        for path, name in ALLOWED:
            with self.subTest(path=path, name=name):
                status, output = run_checker({path: f"#include {name}\n"})
                self.assertEqual(status, 0, output)

    def test_forbidden(self):
        for path, name in FORBIDDEN:
            with self.subTest(path=path, name=name):
                status, output = run_checker({path: f"\n#  include {name}\n"})
                self.assertEqual(status, 1, output)
                self.assertIn(f"{path}:2:", output)

    def test_file_names_are_unique(self):
        status, output = run_checker({"tests/support/span.h": ""})
        self.assertEqual(status, 1, output)
        self.assertIn("src/core/span.h", output)

    def test_public_functions_live_with_their_object(self):
        header = "RA_API int ra_comm_rank(const ra_comm *comm);\nRA_API ra_status ra_plan_wait(ra_plan *plan,\n  void *s);\n"
        comm = "int ra_comm_rank(const ra_comm *comm) {\n    return 0;\n}\n"
        plan = "ra_status ra_plan_wait(ra_plan *plan,\n                       void *s) {\n    return 0;\n}\n"
        at_home = {"include/ringattn/ringattn.h": header, "src/transport/a.c": comm, "src/api/b.c": plan}
        self.assertEqual(run_checker(at_home)[0], 0, run_checker(at_home)[1])
        for files, wrong in (({**at_home, "src/transport/a.c": "", "src/api/c.c": comm}, "lives in src/transport"),
                             ({**at_home, "src/api/b.c": "", "src/exec/d.c": plan}, "lives in src/api"),
                             ({**at_home, "src/api/b.c": ""}, "ra_plan_wait is defined nowhere"),
                             ({**at_home, "include/ringattn/ringattn.h": header + "RA_API void ra_odd(void);\n"},
                              "ra_odd has no home")):
            with self.subTest(wrong=wrong):
                status, output = run_checker(files)
                self.assertEqual(status, 1, output)
                self.assertIn(wrong, output)

    def test_public_structures_can_grow_or_say_so(self):
        grows = "typedef struct ra_a {\n    size_t struct_size;\n    int x;\n} ra_a;\n"
        fixed = "/* Others grow; ra_b and\n * ra_c stay as they are. */\ntypedef struct ra_b {\n    int x;\n} ra_b;\n"
        header = "include/ringattn/ringattn.h"
        self.assertEqual(run_checker({header: fixed + grows})[0], 0)
        for text in (grows.replace("size_t struct_size", "int size"), fixed + grows.replace("ra_a", "ra_c")):
            status, output = run_checker({header: text})
            self.assertEqual(status, 1, output)
            self.assertIn("struct_size", output)

    def test_an_empty_tree_is_refused(self):
        with tempfile.TemporaryDirectory() as root:
            done = subprocess.run([sys.executable, CHECKER, root], capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
