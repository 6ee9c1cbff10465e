"""The programs in docs/python.md run as they are printed."""
import os
import pathlib
import re
import subprocess
import sys

import pytest
from test_launched import has, missing

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def program(phrase):
    """The one program that has this in it."""
    found = [text for text in PROGRAMS if phrase in text]
    assert len(found) == 1, (phrase, len(found))
    return found[0]


def run(folder, text, *launcher, **environment):
    (folder / "printed.py").write_text(text, encoding="utf-8")
    ran = subprocess.run([sys.executable, *launcher, str(folder / "printed.py")], capture_output=True, text=True,
                         timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return ran.stdout


def test_every_program_is_run_here():
    assert len(PROGRAMS) == 3


def test_arrays(tmp_path):
    text = program("attention_backward") + """
one = ringattn.attention(q, k, v, window=(1024, 0))
assert abs(o - one).max() < 1e-5 and dq.shape == q.shape and dk.shape == k.shape and dv.shape == v.shape
"""
    run(tmp_path, text)


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_model(tmp_path):
    """Its loss is the same with one rank and with two."""
    losses = [re.findall(r"loss ([\d.]+)", run(tmp_path, program("ringattn.hf"), "-m", "torch.distributed.run",
                                               "--standalone", f"--nproc-per-node={ranks}")) for ranks in (1, 2)]
    assert len(losses[0]) == 1 and len(losses[1]) == 2
    assert all(abs(float(loss) - float(losses[0][0])) < 2e-5 for loss in losses[1])


@pytest.mark.slow
@pytest.mark.skipif(not has("jax"), reason="jax is not installed")
def test_jax(tmp_path):
    text = program("ringattn.jax") + """
import ringattn
want = ringattn.attention(*(np.asarray(x) for x in (q, k, v)), causal=True)
assert len(jax.devices()) == 4 and abs(np.asarray(o) - want).max() < 1e-5
"""
    run(tmp_path, text, XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")
