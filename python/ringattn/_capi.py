"""The C interface as ctypes sees it: every structure and prototype of include/ringattn/*.h that Python uses, and no
more.

tests/python/test_capi.py compares sizes and offsets with what a C compiler makes of the headers.
"""
from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

SCALE_DEFAULT = float("-inf")

# Values of the enumerations, by the names that the C parsers take.
DTYPES = {"f32": 1, "f64": 2, "bf16": 3, "f16": 4}
LAYOUTS = {"auto": 0, "contiguous": 1, "zigzag": 2, "striped": 3, "documents": 4}
STRATEGIES = {"auto": 0, "ring": 1, "pairwise": 2, "allgather": 3, "passq": 4}
DILATED_HEADS = {"all": 0, "groups": 1}
DILATED_OFFSETS = {"head": 0, "block": 1, "group": 2}
DILATED_COMBINES = {"lse": 0, "mean": 1}
PASSES = {"forward": 0, "backward": 1}

STATUSES = {
    "RA_OK": 0,
    "RA_ERR_ARGUMENT": 1,
    "RA_ERR_UNSUPPORTED": 2,
    "RA_ERR_MEMORY": 3,
    "RA_ERR_MISMATCH": 4,
    "RA_ERR_TIMEOUT": 5,
    "RA_ERR_PEER": 6,
    "RA_ERR_TRANSPORT": 7,
    "RA_ERR_BROKEN": 8,
    "RA_ERR_INTERNAL": 9,
    "RA_ERR_DEVICE": 10,
}


class Branch(ctypes.Structure):
    """ra_branch"""

    _fields_ = [("segment", c_int64), ("rate", c_int64)]


class Problem(ctypes.Structure):
    """ra_problem"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("initialised", c_int),
        ("dtype", c_int),
        ("out_dtype", c_int),
        ("batch", c_int64),
        ("seq_q", c_int64),
        ("seq_k", c_int64),
        ("heads_q", c_int64),
        ("heads_kv", c_int64),
        ("dim", c_int64),
        ("dim_v", c_int64),
        ("scale", c_double),
        ("causal", c_int),
        ("window_left", c_int64),
        ("window_right", c_int64),
        ("documents", c_int64),
        ("cu_seqlens_q", POINTER(c_int64)),
        ("cu_seqlens_k", POINTER(c_int64)),
        ("branches", c_int64),
        ("dilated", POINTER(Branch)),
        ("dilated_heads", c_int),
        ("dilated_offset", c_int),
        ("dilated_combine", c_int),
    ]


class Options(ctypes.Structure):
    """ra_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layout", c_int),
        ("strategy", c_int),
        ("backward", c_int),
        ("kernel", c_char_p),
        ("threads", c_int),
        ("timeout_seconds", c_double),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("backend", c_void_p),
    ]


class Tensor(ctypes.Structure):
    """ra_tensor and ra_input, which differ in constness alone."""

    _fields_ = [("data", c_void_p), ("strided", c_int), ("stride", c_int64 * 4)]


class Tensors(ctypes.Structure):
    """ra_tensors"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("o", Tensor),
        ("lse", c_void_p),
        ("lse_strided", c_int),
        ("lse_stride", c_int64 * 3),
    ]


class Gradients(ctypes.Structure):
    """ra_gradients"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("o", Tensor),
        ("lse", c_void_p),
        ("lse_strided", c_int),
        ("lse_stride", c_int64 * 3),
        ("dout", Tensor),
        ("dq", Tensor),
        ("dk", Tensor),
        ("dv", Tensor),
    ]


class Traffic(ctypes.Structure):
    """ra_traffic"""

    _fields_ = [
        ("bytes_planned", c_int64),
        ("messages_planned", c_int64),
        ("bytes_sent", c_int64),
        ("messages_sent", c_int64),
    ]


class PlanInfo(ctypes.Structure):
    """ra_plan_info"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_int),
        ("ranks", c_int),
        ("rows_q", c_int64),
        ("rows_k", c_int64),
        ("pairs", c_int64),
        ("workspace_bytes", c_int64),
        ("kv_slot_bytes", c_int64),
        ("state_bytes", c_int64),
        ("grad_slot_bytes", c_int64),
        ("scratch_bytes", c_int64),
        ("kv_slots", c_int),
        ("grad_slots", c_int),
        ("steps_forward", c_int),
        ("steps_backward", c_int),
        ("layout", c_int),
        ("strategy", c_int),
        ("kernel", c_char_p),
        ("device", c_char_p),
        ("forward", Traffic),
        ("backward", Traffic),
        ("plan_bytes", c_int64),
    ]


class StepInfo(ctypes.Structure):
    """ra_step_info"""

    _fields_ = [
        ("owner", c_int),
        ("visitor", c_int),
        ("pairs", c_int64),
        ("send_peer", c_int),
        ("recv_peer", c_int),
        ("sends", c_int),
        ("recvs", c_int),
        ("bytes_sent", c_int64),
        ("bytes_received", c_int64),
    ]


class CudaDeviceInfo(ctypes.Structure):
    """ra_cuda_device_info"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 256),
        ("memory_bytes", c_int64),
        ("major", c_int),
        ("minor", c_int),
        ("multiprocessors", c_int),
    ]


class UcxOptions(ctypes.Structure):
    """ra_ucx_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("transports", c_char_p),
        ("devices", c_char_p),
        ("create_seconds", c_double),
        ("destroy_seconds", c_double),
    ]


# C's name of each structure, for the test of the offsets.
STRUCTURES = {
    "ra_branch": Branch,
    "ra_problem": Problem,
    "ra_options": Options,
    "ra_tensor": Tensor,
    "ra_input": Tensor,
    "ra_tensors": Tensors,
    "ra_gradients": Gradients,
    "ra_traffic": Traffic,
    "ra_plan_info": PlanInfo,
    "ra_step_info": StepInfo,
    "ra_cuda_device_info": CudaDeviceInfo,
    "ra_ucx_options": UcxOptions,
}

# ra_status (*)(void *user, const void *mine, size_t bytes, void *all_out)
AllGather = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)

_problem = POINTER(Problem)
_options = POINTER(Options)
_handle_out = POINTER(c_void_p)

# name: (result, arguments). A result of Status is checked by the caller, by errors.check.
Status = c_int
CORE = {
    "ra_status_text": (c_char_p, [c_int]),
    "ra_last_error": (c_char_p, []),
    "ra_version": (c_char_p, []),
    "ra_problem_init": (None, [_problem]),
    "ra_options_init": (None, [_options]),
    "ra_tensors_init": (None, [POINTER(Tensors)]),
    "ra_gradients_init": (None, [POINTER(Gradients)]),
    "ra_plan_info_init": (None, [POINTER(PlanInfo)]),
    "ra_comm_create_self": (Status, [_handle_out]),
    "ra_comm_create_threads": (Status, [c_int, _handle_out]),
    "ra_comm_rank": (c_int, [c_void_p]),
    "ra_comm_ranks": (c_int, [c_void_p]),
    "ra_comm_transport": (c_char_p, [c_void_p]),
    "ra_comm_lost": (c_int, [c_void_p]),
    "ra_comm_progress": (None, [c_void_p]),
    "ra_comm_allgather": (Status, [c_void_p, c_void_p, c_size_t, c_void_p, c_double]),
    "ra_comm_destroy": (None, [c_void_p]),
    "ra_plan_create": (Status, [c_void_p, _problem, _options, _handle_out]),
    "ra_plan_forward": (Status, [c_void_p, POINTER(Tensors), c_void_p]),
    "ra_plan_backward": (Status, [c_void_p, POINTER(Gradients), c_void_p]),
    "ra_plan_wait": (Status, [c_void_p, c_void_p]),
    "ra_plan_describe": (Status, [c_void_p, POINTER(PlanInfo)]),
    "ra_plan_destroy": (None, [c_void_p]),
    "ra_predict": (Status, [_problem, _options, c_int, c_int, POINTER(PlanInfo)]),
    "ra_predict_steps": (
        Status,
        [_problem, _options, c_int, c_int, c_int, POINTER(StepInfo), c_int, POINTER(c_int)],
    ),
    "ra_layout_resolve": (Status, [_problem, _options, c_int, POINTER(c_int)]),
    "ra_layout_rows": (c_int64, [c_int, c_int64, c_int, c_int]),
    "ra_layout_positions": (Status, [c_int, c_int64, c_int, c_int, POINTER(c_int64)]),
    "ra_packed_positions": (Status, [c_int, c_int64, c_int64, POINTER(c_int64), c_int, c_int, POINTER(c_int64)]),
    "ra_layout_locate": (Status, [c_int, c_int64, c_int, c_int64, POINTER(c_int), POINTER(c_int64)]),
    "ra_backend_stream_create": (Status, [c_void_p, _handle_out]),
    "ra_backend_stream_destroy": (None, [c_void_p, c_void_p]),
    "ra_reference": (Status, [_problem] + [POINTER(c_double)] * 9),
    # Varargs in C; Python formats the text and gives "%s" and one string.
    "ra_fail": (Status, [c_int, c_char_p, c_char_p]),
    # These say so where UCX was left out of the library.
    "ra_comm_create_ucx": (Status, [c_int, c_int, AllGather, c_void_p, POINTER(UcxOptions), _handle_out]),
    "ra_ucx_version": (Status, [POINTER(c_char_p)]),
}

CUDA = {
    "ra_cuda_devices": (c_int, []),
    "ra_cuda_describe": (Status, [c_int, POINTER(CudaDeviceInfo)]),
    "ra_cuda_backend": (Status, [c_int, _handle_out]),
    "ra_cuda_has_nccl": (c_int, []),
    "ra_comm_create_nccl": (Status, [c_void_p, c_int, c_double, _handle_out]),
    "ra_comm_wrap_nccl": (Status, [c_void_p, c_void_p, c_int, _handle_out]),
}


def declare(library: ctypes.CDLL, prototypes: dict) -> None:
    """Gives the library's functions their types; AttributeError names one that is missing."""
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
