"""The programs in examples/python run, and say what they should."""
import os
import pathlib
import re
import subprocess
import sys

import pytest
from test_launched import missing

pytest.importorskip("torch", reason="torch is not installed")
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def run(*command):
    ran = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=180,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return ran.stdout


def test_arrays():
    assert "a million tokens" in run(EXAMPLES / "arrays.py")


def test_longnet():
    assert run(EXAMPLES / "longnet.py").count("with two") == 5


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_train_llama():
    """The losses of one rank and of two are the same, and go down."""
    losses = []
    for ranks in (1, 2):
        text = run("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
                   EXAMPLES / "train_llama.py")
        losses.append([float(loss) for loss in re.findall(r"loss ([\d.]+)", text)])
    one, two = losses
    assert len(one) == len(two) == 8 and one[-1] < one[0]
    assert max(abs(a - b) for a, b in zip(one, two)) < 2e-4 * one[0]
