"""Exact attention over sequences cut across ranks.

    import ringattn
    o = ringattn.attention(q, k, v, causal=True, ranks=4)           # [B, S, H, D] arrays; threads of this process

ringattn.torch has the operators for PyTorch, ringattn.jax those for JAX, ringattn.hf and ringattn.trainer the adapters
for transformers and accelerate, ringattn.compat the interfaces of other packages. None of them is imported, nor numpy,
before it is used.
"""
from .comm import Comm, run_ranks
from .errors import (ArgumentError, BrokenError, DeviceError, Error, InternalError, MismatchError, OutOfMemoryError,
                     PeerError, PeerTimeoutError, TransportError, UnsupportedError)
from .functional import attention, attention_backward
from .layout import layout_positions, layout_resolve, layout_rows, shard, unshard
from .plan import Plan, PlanInfo, StepInfo, Traffic, predict, predict_steps
from .problem import Dilated, Problem
from .version import __version__

__all__ = [
    "ArgumentError", "BrokenError", "Comm", "DeviceError", "Dilated", "Error", "InternalError", "MismatchError",
    "OutOfMemoryError", "PeerError", "PeerTimeoutError", "Plan", "PlanInfo", "Problem", "StepInfo", "Traffic",
    "TransportError", "UnsupportedError", "__version__", "attention", "attention_backward", "layout_positions",
    "layout_resolve", "layout_rows", "predict", "predict_steps", "run_ranks", "shard", "unshard",
]


def __getattr__(name: str):
    """The submodules below are imported when they are first named."""
    if name in ("compat", "hf", "jax", "plot", "torch", "trainer"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
