"""XLA's interface for foreign functions (xla/ffi/api/c_api.h) as ctypes sees it: what a handler needs, and no more.

A handler is a C function that XLA calls with a frame of buffers and attributes. ctypes makes one of a Python function,
so that nothing is compiled. The structures of that interface only grow at their ends; each begins with its size.
"""
from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
import sys
from typing import Any, Callable, Dict, List, Optional

METADATA = 1  # the one type of extension: XLA asks what the handler is
EXECUTE = 3  # the one stage of ours
_INTERNAL = 13  # XLA_FFI_Error_Code_INTERNAL


class Extension(ctypes.Structure):
    """XLA_FFI_Extension_Base"""

    _fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", c_void_p)]


class Version(ctypes.Structure):
    """XLA_FFI_Api_Version"""

    _fields_ = [("struct_size", c_size_t), ("extension_start", c_void_p), ("major_version", c_int),
                ("minor_version", c_int)]


class Metadata(ctypes.Structure):
    """XLA_FFI_Metadata, as far as every version has it"""

    _fields_ = [("struct_size", c_size_t), ("api_version", Version), ("traits", c_uint32)]


class MetadataExtension(ctypes.Structure):
    """XLA_FFI_Metadata_Extension"""

    _fields_ = [("extension_base", Extension), ("metadata", POINTER(Metadata))]


class ErrorArguments(ctypes.Structure):
    """XLA_FFI_Error_Create_Args"""

    _fields_ = [("struct_size", c_size_t), ("extension_start", c_void_p), ("message", c_char_p), ("errc", c_int)]


class StreamArguments(ctypes.Structure):
    """XLA_FFI_Stream_Get_Args"""

    _fields_ = [("struct_size", c_size_t), ("extension_start", c_void_p), ("ctx", c_void_p), ("stream", c_void_p)]


class OrdinalArguments(ctypes.Structure):
    """XLA_FFI_DeviceOrdinal_Get_Args"""

    _fields_ = [("struct_size", c_size_t), ("extension_start", c_void_p), ("ctx", c_void_p),
                ("device_ordinal", c_int32)]


_ErrorCreate = CFUNCTYPE(c_void_p, POINTER(ErrorArguments))
_StreamGet = CFUNCTYPE(c_void_p, POINTER(StreamArguments))
_OrdinalGet = CFUNCTYPE(c_void_p, POINTER(OrdinalArguments))


class Api(ctypes.Structure):
    """XLA_FFI_Api: its functions in their order. Those that are not called here are addresses only."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("extension_start", c_void_p),
        ("api_version", Version),
        ("internal_api", c_void_p),
        ("XLA_FFI_Error_Create", _ErrorCreate),
        ("XLA_FFI_Error_GetMessage", c_void_p),
        ("XLA_FFI_Error_Destroy", c_void_p),
        ("XLA_FFI_Handler_Register", c_void_p),
        ("XLA_FFI_Stream_Get", _StreamGet),
        ("XLA_FFI_Type_Register", c_void_p),
        ("XLA_FFI_ExecutionContext_Get", c_void_p),
        ("XLA_FFI_State_Set", c_void_p),
        ("XLA_FFI_State_Get", c_void_p),
        ("XLA_FFI_DeviceMemory_Allocate", c_void_p),
        ("XLA_FFI_DeviceMemory_Free", c_void_p),
        ("XLA_FFI_ThreadPool_Schedule", c_void_p),
        ("XLA_FFI_ThreadPool_NumThreads", c_void_p),
        ("XLA_FFI_Future_Create", c_void_p),
        ("XLA_FFI_Future_SetAvailable", c_void_p),
        ("XLA_FFI_Future_SetError", c_void_p),
        ("XLA_FFI_RunId_Get", c_void_p),
        ("XLA_FFI_DeviceOrdinal_Get", _OrdinalGet),
    ]


class Buffer(ctypes.Structure):
    """XLA_FFI_Buffer: a dense array in C order"""

    _fields_ = [("struct_size", c_size_t), ("extension_start", c_void_p), ("dtype", c_int), ("data", c_void_p),
                ("rank", c_int64), ("dims", POINTER(c_int64))]


class Buffers(ctypes.Structure):
    """XLA_FFI_Args and XLA_FFI_Rets"""

    _fields_ = [("struct_size", c_size_t), ("extension_start", c_void_p), ("size", c_int64), ("types", c_void_p),
                ("args", POINTER(POINTER(Buffer)))]


class Text(ctypes.Structure):
    """XLA_FFI_ByteSpan"""

    _fields_ = [("ptr", c_void_p), ("len", c_size_t)]


class Attributes(ctypes.Structure):
    """XLA_FFI_Attrs; ours are texts."""

    _fields_ = [("struct_size", c_size_t), ("extension_start", c_void_p), ("size", c_int64), ("types", c_void_p),
                ("names", POINTER(POINTER(Text))), ("attrs", POINTER(POINTER(Text)))]


class Frame(ctypes.Structure):
    """XLA_FFI_CallFrame"""

    _fields_ = [("struct_size", c_size_t), ("extension_start", POINTER(Extension)), ("api", POINTER(Api)),
                ("ctx", c_void_p), ("stage", c_int), ("args", Buffers), ("rets", Buffers), ("attrs", Attributes)]


# C's name of each structure, for the test of the offsets.
STRUCTURES = {
    "XLA_FFI_Extension_Base": Extension, "XLA_FFI_Api_Version": Version, "XLA_FFI_Error_Create_Args": ErrorArguments,
    "XLA_FFI_Stream_Get_Args": StreamArguments, "XLA_FFI_DeviceOrdinal_Get_Args": OrdinalArguments,
    "XLA_FFI_Api": Api, "XLA_FFI_Buffer": Buffer, "XLA_FFI_Args": Buffers, "XLA_FFI_ByteSpan": Text,
    "XLA_FFI_Attrs": Attributes, "XLA_FFI_Metadata_Extension": MetadataExtension, "XLA_FFI_Metadata": Metadata,
    "XLA_FFI_CallFrame": Frame,
}

HandlerType = CFUNCTYPE(c_void_p, POINTER(Frame))


class Call:
    """One call of a handler: addresses of its arguments and results, its text attributes, its device and stream."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.arguments = _addresses(frame.args)
        self.results = _addresses(frame.rets)

    def texts(self) -> Dict[str, bytes]:
        given = self._frame.attrs
        return {_bytes_of(given.names[i][0]).decode(): _bytes_of(given.attrs[i][0]) for i in range(given.size)}

    def ordinal(self) -> int:
        """Which device of its kind this is, among those of the process."""
        api = self._frame.api[0]
        if api.struct_size < Api.XLA_FFI_DeviceOrdinal_Get.offset + ctypes.sizeof(c_void_p):
            raise RuntimeError("this jaxlib does not tell a foreign function its device; use a later one")
        asked = OrdinalArguments(struct_size=ctypes.sizeof(OrdinalArguments), ctx=self._frame.ctx)
        _told(api.XLA_FFI_DeviceOrdinal_Get(ctypes.byref(asked)))
        return asked.device_ordinal

    def stream(self) -> Optional[int]:
        """The CUDA stream of this call."""
        api = self._frame.api[0]
        asked = StreamArguments(struct_size=ctypes.sizeof(StreamArguments), ctx=self._frame.ctx)
        _told(api.XLA_FFI_Stream_Get(ctypes.byref(asked)))
        return asked.stream


def _told(error: Optional[int]) -> None:
    if error:
        raise RuntimeError("XLA does not tell what it was asked for")


def _addresses(buffers: Buffers) -> List[Optional[int]]:
    return [buffers.args[i][0].data for i in range(buffers.size)]


def _bytes_of(text: Text) -> bytes:
    return ctypes.string_at(text.ptr, text.len) if text.len else b""


def _introduce(frame: Frame) -> bool:
    """Whether XLA only asked what the handler is; it is of the version of whoever asks, with no traits."""
    if not frame.extension_start or frame.extension_start[0].type != METADATA:
        return False
    asked = ctypes.cast(frame.extension_start, POINTER(MetadataExtension))[0].metadata[0]
    asked.api_version.major_version, asked.api_version.minor_version, asked.traits = 0, 1, 0
    if frame.api:
        own = frame.api[0].api_version
        asked.api_version.major_version, asked.api_version.minor_version = own.major_version, own.minor_version
    return True


def handler(body: Callable[[Call], None]) -> Any:
    """body(call) as a handler. What it raises becomes XLA's error, with the same sentence."""

    def entry(pointer: Any) -> Optional[int]:
        frame = pointer[0]
        try:
            if not _introduce(frame) and frame.stage == EXECUTE:
                body(Call(frame))
            return None
        except BaseException as error:  # it must not go through C
            text = f"ringattn: {error}".encode()
            asked = ErrorArguments(struct_size=ctypes.sizeof(ErrorArguments), message=text, errc=_INTERNAL)
            if not frame.api:
                sys.stderr.write(text.decode() + "\n")
                return None
            return frame.api[0].XLA_FFI_Error_Create(ctypes.byref(asked))

    return HandlerType(entry)
