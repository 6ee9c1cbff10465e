"""Ranks over MPI, from an mpi4py communicator."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from ringattn import _library

HERE = pathlib.Path(__file__).resolve().parent
MPIRUN = shutil.which("mpirun")


# Open MPI's: as root, and with more ranks than cores.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}


@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
@pytest.mark.skipif(_library.mpi() is None, reason="libringattn_mpi is not there")
@pytest.mark.parametrize("ranks", [1, 3])
def test_mpi4py(ranks):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    ran = subprocess.run([MPIRUN, "-n", str(ranks), sys.executable, str(HERE / "launch_mpi.py")], capture_output=True,
                         text=True, timeout=120, env={**os.environ, **MPI_ENVIRONMENT})
    assert ran.returncode == 0 and "shown: mpi4py" in ran.stdout, ran.stdout[-2000:] + ran.stderr[-4000:]
