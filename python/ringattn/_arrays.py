"""Arrays of other libraries as pointers with shapes and strides, without copies.

numpy arrays and torch tensors are known by type; others by the DLPack protocol or `__cuda_array_interface__`; what is
none of these (lists, memoryviews) goes through numpy. A View keeps what it points into alive.
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple, Optional, Sequence, Tuple

from . import _capi
from .errors import ArgumentError

_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
_NAMES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}


class View(NamedTuple):
    """Elements of type `dtype` ("f32") at `pointer`; strides in elements; device ("cpu", 0) or ("cuda", ordinal)."""

    pointer: int
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    device: Tuple[str, int]
    owner: Any

    def contiguous(self) -> bool:
        """Whether it lies in C order; extents of 1, and those of an empty array, have any stride."""
        if 0 in self.shape:
            return True
        expected = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides)):
            if n > 1 and stride != expected:
                return False
            expected *= n
        return True

    def repeats(self) -> bool:
        """Whether elements share memory, as those of a broadcast array do; there are none in an empty array, which has
        strides of 0 in numpy."""
        return 0 not in self.shape and any(n > 1 and stride == 0 for n, stride in zip(self.shape, self.strides))


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_numpy(x: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, numpy.ndarray)


def as_array(x: Any) -> Any:
    """x itself where it is an array of any kind, else as a numpy array."""
    if is_torch(x) or is_numpy(x) or hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"):
        return x
    import numpy

    return numpy.asarray(x)


def view(x: Any, name: str) -> View:
    """x [any shape] as it lies in memory; a numpy array whose strides are no whole elements is copied."""
    if is_torch(x):
        return _view_torch(x, name)
    if is_numpy(x):
        return _view_numpy(x, name)
    if hasattr(x, "__cuda_array_interface__"):
        return _view_cuda_interface(x, name)
    if hasattr(x, "__dlpack__"):
        return _view_dlpack(x, name)
    return _view_numpy(as_array(x), name)


def _named(dtype: str, name: str) -> str:
    if dtype not in _NAMES:
        raise ArgumentError(f"{name} has elements of type {dtype}; use float64, float32, bfloat16 or float16")
    return _NAMES[dtype]


def _view_torch(x: Any, name: str) -> View:
    torch = sys.modules["torch"]
    if x.layout is not torch.strided:
        raise ArgumentError(f"{name} is a tensor of layout {x.layout}; make it dense first")
    if x.device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"{name} is on {x.device}; ringattn computes on cpu and cuda")
    if x.is_neg():
        raise ArgumentError(f"{name} is to be negated when it is read; give x.resolve_neg()")
    dtype = _named(str(x.dtype).replace("torch.", ""), name)
    device = (x.device.type, x.device.index or 0)
    return View(x.data_ptr(), dtype, tuple(x.shape), tuple(x.stride()), device, x)


def _view_numpy(x: Any, name: str) -> View:
    import numpy

    dtype = _named(x.dtype.name, name)
    if hasattr(x, "mask"):
        raise ArgumentError(f"{name} has a mask of its own; fill it in first")
    if not x.dtype.isnative:
        raise ArgumentError(
            f"{name} has elements in the other byte order; convert it with x.astype(x.dtype.newbyteorder('='))")
    bytes_each = x.dtype.itemsize
    if not x.flags.aligned or any(stride % bytes_each for stride in x.strides):
        x = numpy.ascontiguousarray(x)
    strides = tuple(stride // bytes_each for stride in x.strides)
    return View(x.ctypes.data, dtype, x.shape, strides, ("cpu", 0), x)


_TYPESTRS = {"<f2": "f16", "<f4": "f32", "<f8": "f64", "=f2": "f16", "=f4": "f32", "=f8": "f64"}


def _view_cuda_interface(x: Any, name: str) -> View:
    about = x.__cuda_array_interface__
    dtype = _TYPESTRS.get(about["typestr"])
    if dtype is None:
        raise ArgumentError(f"{name} has elements of type {about['typestr']}; use float64, float32 or float16")
    if about.get("mask") is not None:
        raise ArgumentError(f"{name} has a mask of its own; fill it in first")
    shape = tuple(about["shape"])
    if about.get("strides"):
        if any(stride % _BYTES[dtype] for stride in about["strides"]):
            raise ArgumentError(f"{name} has strides that are no whole elements")
        strides = tuple(stride // _BYTES[dtype] for stride in about["strides"])
    else:
        strides = c_order(shape)
    device = getattr(getattr(x, "device", None), "id", 0)
    return View(about["data"][0], dtype, shape, strides, ("cuda", int(device)), x)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}  # 3: pinned host memory, 13: managed
_DL_DTYPES = {(2, 16): "f16", (2, 32): "f32", (2, 64): "f64", (4, 16): "bf16"}


def _view_dlpack(x: Any, name: str) -> View:
    # The capsule is not consumed: its own destructor releases the tensor when the view is gone.
    capsule = x.__dlpack__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(pointer_of(capsule, b"dltensor"))
    dtype = _DL_DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise ArgumentError(
            f"{name} has elements of DLPack type ({tensor.code}, {tensor.bits}); use a floating-point type")
    if tensor.device_type not in _DL_DEVICES:
        raise ArgumentError(f"{name} is on DLPack device {tensor.device_type}; ringattn computes on cpu and cuda")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else c_order(shape)
    device = (_DL_DEVICES[tensor.device_type], tensor.device_id if tensor.device_type in (2, 13) else 0)
    return View((tensor.data or 0) + tensor.byte_offset, dtype, shape, strides, device, (x, capsule))


def c_order(shape: Sequence[int]) -> Tuple[int, ...]:
    """The strides of C order, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def empty(like: Any, shape: Sequence[int], dtype: str) -> Any:
    """A new array of the kind and on the device of `like`: torch for torch, cupy for cupy, numpy for all else on the
    CPU."""
    if is_torch(like):
        torch = sys.modules["torch"]
        names = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
        return torch.empty(tuple(shape), dtype=names[dtype], device=like.device)
    if type(like).__module__.split(".")[0] == "cupy":
        return sys.modules["cupy"].empty(tuple(shape), dtype=_numpy_dtype(dtype))
    if not is_numpy(like) and view(like, "the array").device[0] != "cpu":
        raise ArgumentError(
            f"no arrays like {type(like).__name__} can be made on its device; give torch or cupy arrays")
    import numpy

    return numpy.empty(tuple(shape), dtype=_numpy_dtype(dtype))


def _numpy_dtype(dtype: str) -> Any:
    if dtype == "bf16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return {"f64": "float64", "f32": "float32", "f16": "float16"}[dtype]


def indexable(x: Any, name: str) -> Any:
    """x as an array that can be sliced and indexed: itself, or a numpy array of the same memory."""
    if is_torch(x) or is_numpy(x) or type(x).__module__.split(".")[0] == "cupy":
        return x
    seen = view(x, name)
    if seen.device[0] != "cpu":
        raise ArgumentError(f"{name} is a {type(x).__name__} on {seen.device[0]}; give it as a torch or cupy array")
    return numpy_of(seen)


def numpy_of(seen: View) -> Any:
    """A View of host memory as a numpy array, without a copy."""
    import numpy

    dtype = numpy.dtype(_numpy_dtype(seen.dtype))
    strides = tuple(stride * dtype.itemsize for stride in seen.strides)
    extents = [(n - 1) * stride for n, stride in zip(seen.shape, strides)]
    if 0 in seen.shape:
        return numpy.empty(seen.shape, dtype)
    first = sum(extent for extent in extents if extent < 0)
    size = sum(abs(extent) for extent in extents) + dtype.itemsize
    memory = (ctypes.c_char * size).from_address(seen.pointer + first)
    memory.owner = seen.owner  # the buffer, which the array holds, holds the owner
    return numpy.ndarray(seen.shape, dtype, memory, -first, strides)


def tensor(seen: Optional[View], name: str, shape: Sequence[Optional[int]], output: bool = False) -> _capi.Tensor:
    """ra_tensor or ra_input of a View, whose shape is checked; None in `shape` is any extent."""
    if seen is None:
        return _capi.Tensor()
    if len(seen.shape) != len(shape) or any(want is not None and n != want for n, want in zip(seen.shape, shape)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ArgumentError(f"{name} has shape {list(seen.shape)}; it must be [{wanted}]")
    if output and seen.repeats():
        raise ArgumentError(f"{name} is written, so its elements must not share memory (a stride is 0)")
    if seen.contiguous():
        return _capi.Tensor(data=seen.pointer)
    return _capi.Tensor(data=seen.pointer, strided=1, stride=(ctypes.c_int64 * 4)(*seen.strides))
