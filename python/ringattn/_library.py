"""Finding and loading libringattn and the libraries beside it.

Looked for, in this order: the folder that RINGATTN_LIBRARY names (or the file: its folder), installed or src/ of a
build; without it the package's own folder, the build folder of a source tree that the package lies in, and where the
system's loader looks.
"""
from __future__ import annotations

import ctypes
import functools
import os
from typing import Iterator, Optional

from . import _capi
from .version import __version__

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def _with_parts(folder: str) -> Iterator[str]:
    """A folder, and where a build that has it as src/ puts the other libraries."""
    yield folder
    yield os.path.join(folder, "api", "cuda")
    yield os.path.join(folder, "transport", "mpi")


def folders() -> Iterator[str]:
    """Folders that may hold the libraries, best first; "" stands for the system's."""
    given = os.environ.get("RINGATTN_LIBRARY")
    if given:
        yield from _with_parts(os.path.abspath(given if os.path.isdir(given) else os.path.dirname(given)))
        return
    yield os.path.join(_PACKAGE, "lib")
    root = os.path.dirname(os.path.dirname(_PACKAGE))
    if os.path.isfile(os.path.join(root, "include", "ringattn", "ringattn.h")):
        yield from _with_parts(os.path.join(root, "build", "src"))
    yield ""


def _candidates(name: str) -> Iterator[str]:
    for folder in folders():
        for file in (f"lib{name}.so", f"lib{name}.so.0", f"lib{name}.dylib"):
            if not folder:
                yield file
            elif os.path.isfile(os.path.join(folder, file)):
                yield os.path.join(folder, file)


def _open(name: str) -> Optional[ctypes.CDLL]:
    for path in _candidates(name):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            # A file of ours that is there but cannot be loaded has a reason worth telling.
            if os.path.isabs(path):
                raise ImportError(f"ringattn: {path} cannot be loaded: {error}") from None
    return None


def _series(version: str) -> str:
    """What must be equal for the structures to be: "0.2" of "0.2.1"; "1" of "1.4.0"."""
    major, minor = version.split(".")[:2]
    return f"{major}.{minor}" if major == "0" else major


@functools.lru_cache(maxsize=None)
def core() -> ctypes.CDLL:
    """libringattn, with its functions declared."""
    library = _open("ringattn")
    if library is None:
        raise ImportError(
            "ringattn: libringattn was not found; build it (`make`) and set RINGATTN_LIBRARY to the folder it is in, "
            "or install the package with `pip install .`, which builds it"
        )
    library.ra_version.restype = ctypes.c_char_p
    found = library.ra_version().decode()
    if _series(found) != _series(__version__):
        raise ImportError(
            f"ringattn: the library is version {found}, the Python package {__version__}; "
            "they must be of one release: install both again, or unset RINGATTN_LIBRARY"
        )
    _capi.declare(library, _capi.CORE)
    return library


@functools.lru_cache(maxsize=None)
def load_ucx() -> None:
    """Loads the UCX that PyPI's libucx packages bring, where one is installed; the library takes what is loaded
    already, and else the system's."""
    try:
        import libucx
    except ImportError:
        return
    libucx.load_library()


@functools.lru_cache(maxsize=None)
def cuda() -> Optional[ctypes.CDLL]:
    """libringattn_cuda, or None where the package was built without CUDA."""
    core()
    library = _open("ringattn_cuda")
    if library is not None:
        _capi.declare(library, _capi.CUDA)
    return library


@functools.lru_cache(maxsize=None)
def mpi() -> Optional[ctypes.CDLL]:
    """libringattn_mpi, or None. Its one function is declared by Comm.mpi, which knows how large an MPI_Comm is."""
    core()
    return _open("ringattn_mpi")
