"""Ranks that are processes, launched by torchrun over gloo, connected over UCX. Few launches, many cases in each."""
import ctypes
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

from ringattn import _library

HERE = pathlib.Path(__file__).resolve().parent


def has(package):
    """Whether a package is installed; to import it here would take seconds."""
    return importlib.util.find_spec(package) is not None


def missing():
    """Why there are no ranks over UCX here, or None."""
    for package in ("torch", "transformers"):
        if not has(package):
            return f"{package} is not installed"
    library = _library.core()
    _library.load_ucx()
    version = ctypes.c_char_p()
    if library.ra_ucx_version(ctypes.byref(version)) != 0:
        return library.ra_last_error().decode()
    return None


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def launch(ranks, script, *arguments, timeout=240):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
               str(HERE / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_training(ranks):
    """A tiny Llama under DDP and FSDP2; and, where accelerate is there, under Trainer and accelerate, with 4 ranks two
    sequences at a time, each over two ranks."""
    modules = ["launch_training"] + (["launch_trainer"] if has("accelerate") else [])
    ran = launch(ranks, "launch_all.py", *modules)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
    assert ran.stdout.count("shown:") == (10 if ranks == 2 else 11) + 3 * (len(modules) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_zero(ranks):
    """DeepSpeed compiles an extension when it is first used, which takes minutes."""
    if not has("deepspeed"):
        pytest.skip("deepspeed is not installed")
    ran = launch(ranks, "launch_zero.py", timeout=560)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
    assert ran.stdout.count("shown:") == 4


@pytest.mark.slow
def test_scripts_of_ring_flash_attn():
    """Its own test scripts, of the checkout that RING_FLASH_ATTENTION names, with only the import changed."""
    checkout = os.environ.get("RING_FLASH_ATTENTION")
    if not checkout:
        pytest.skip("RING_FLASH_ATTENTION does not name a checkout of ring-flash-attention")
    ran = launch(2, "launch_scripts.py", str(pathlib.Path(checkout, "test").resolve()))
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
    assert ran.stdout.count("shown:") == 14


@pytest.mark.parametrize("ranks, how", [(4, "dies"), pytest.param(3, "stalls", marks=pytest.mark.slow)])
def test_a_lost_rank_is_named(ranks, how):
    """After random problems, so that `make test` has some over four processes."""
    ran = launch(ranks, "launch_fault.py", how, timeout=120)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
    assert ran.stdout.count("shown:") == 1 and ran.stdout.count("raised") == ranks - 1
