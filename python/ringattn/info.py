"""What this build can do on this machine: the text of `ringattn info`."""
from __future__ import annotations

import ctypes
import os
from typing import List

from . import _capi, _library

_VARIABLES = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_WAIT_POLICY")


def _transports() -> List[str]:
    names = ["self", "thread"]
    if _library.mpi() is not None:
        names.append("mpi")
        cuda = _library.cuda()
        if cuda is not None and cuda.ra_cuda_has_nccl():
            names.append("nccl")
    return names


def _kernels() -> str:
    library, names, i = _library.core(), [], 0
    while True:
        name = library.ra_kernel_name(i)
        if not name:
            return " ".join(names)
        names.append(name.decode() + ("" if library.ra_kernel_usable(i) else " (not on this machine)"))
        i += 1


def _cuda_kernels(backend: int) -> str:
    library, names, i = _library.core(), [], 0
    while True:
        name = library.ra_backend_kernel(backend, i)
        if not name:
            return " ".join(names)
        usable = library.ra_backend_kernel_usable(backend, i)
        names.append(name.decode() + ("" if usable else " (not on cuda:0)"))
        i += 1


def _devices() -> List[str]:
    lines, cuda = ["devices       cpu"], _library.cuda()
    if cuda is None:
        return ["devices       cpu (built without CUDA)"]
    for i in range(cuda.ra_cuda_devices()):
        about = _capi.CudaDeviceInfo(struct_size=ctypes.sizeof(_capi.CudaDeviceInfo))
        if cuda.ra_cuda_describe(i, ctypes.byref(about)) != 0:
            about.name = _library.core().ra_last_error()[:255]
        lines.append(f"              cuda:{i} {about.name.decode()}, {about.memory_bytes / 2**30:.1f} GiB, "
                     f"compute capability {about.major}.{about.minor}")
    if cuda.ra_cuda_devices() == 0:
        lines.append("              no CUDA device, or no driver")
    first = ctypes.c_void_p()
    if cuda.ra_cuda_backend(0, ctypes.byref(first)) == 0:
        lines.append(f"cuda kernels  {_cuda_kernels(first.value)}")
    return lines


def text() -> str:
    """Several lines, as the command prints them."""
    library = _library.core()
    lines = [
        f"version       {library.ra_version().decode()}",
        f"cpu features  {library.ra_cpu_features().decode() or 'none known'}",
        f"kernels       {_kernels()}",
        f"transports    {' '.join(_transports())}",
        *_devices(),
    ]
    for i, name in enumerate(_VARIABLES):
        lines.append(f"{'environment' if i == 0 else '':13} {name}={os.environ.get(name, '(unset)')}")
    return "\n".join(lines)
