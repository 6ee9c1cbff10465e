"""The programs in examples/python run, and say what they should."""
import os
import pathlib
import re
import subprocess
import sys

import pytest
from ringattn import _library
from test_launched import has, missing
from test_mpi import MPI_ENVIRONMENT, MPIRUN

pytestmark = pytest.mark.skipif(not has("torch"), reason="torch is not installed")
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


def test_jax():
    pytest.importorskip("jax", reason="jax is not installed")
    text = run(EXAMPLES / "jax_attention.py")
    assert text.count("step") == 5 and "on 4 devices" in text


@pytest.mark.slow
def test_mpi():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    if MPIRUN is None or _library.mpi() is None:
        pytest.skip("there is no mpirun, or libringattn_mpi is not there")
    ran = subprocess.run([MPIRUN, "-n", "3", sys.executable, str(EXAMPLES / "mpi.py")], capture_output=True, text=True,
                         timeout=120, env={**os.environ, **MPI_ENVIRONMENT})
    assert ran.returncode == 0 and ran.stdout.count("of 10007 rows") == 3, ran.stdout + ran.stderr[-4000:]


_over_ucx = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def over_ucx(test):
    """For what starts processes, which takes long."""
    return pytest.mark.slow(_over_ucx(test))


def launch(ranks, *command):
    return run("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *command)


def train(ranks, *how):
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", launch(ranks, EXAMPLES / "train_llama.py", *how))]
    assert len(losses) == 8 and losses[-1] < losses[0]
    return losses


@over_ucx
def test_train_llama():
    """The losses of one rank and of two are the same."""
    one, two = train(1), train(2)
    assert max(abs(a - b) for a, b in zip(one, two)) < 2e-4 * one[0]


@over_ucx
def test_train_llama_under_zero(monkeypatch):
    """The losses are those of FSDP2."""
    pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    one = train(1)
    for stage in ("2", "3"):
        zero = train(2, "--zero", stage)
        assert max(abs(a - b) for a, b in zip(one, zero)) < 2e-4 * one[0], stage


@over_ucx
def test_long_context():
    """The surprise is the same with one rank as with two."""
    nats = [re.search(r"([\d.]+) nats", text).group(1)
            for text in (run(EXAMPLES / "long_context.py"), launch(2, EXAMPLES / "long_context.py"))]
    assert abs(float(nats[0]) - float(nats[1])) < 1e-5
