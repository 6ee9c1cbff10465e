"""Whether a call of an operator may go straight to its kernel.

torch's dispatcher takes 5 us or more each time it brings a call of Python to a kernel in Python, and with a gradient it
does so twice. All it does on the way is to look for what may stand between: modes, transforms, subclasses, a tracer, a
profiler, tangents, tensors whose memory does not hold their elements as they are (negated ones, batched ones, zeros
without any memory). Where there is none of these, straight() says so, in half a microsecond for each tensor, and the
caller may leave the dispatcher out. A torch that lacks one of the questions below gets no for an answer.
"""
from __future__ import annotations

from typing import Any, Iterable

import torch
from torch import Tensor
from torch.autograd import forward_ad

_KINDS = (Tensor, torch.nn.Parameter)
# The dispatcher goes by a tensor's keys, a set of bits. A dense tensor on the CPU or on a GPU has none but these, and
# whatever asks for special treatment has one more.
_ORDINARY_KEYS = ("CPU", "CUDA", "ADInplaceOrView", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA")


def _bits(names: Iterable[str]) -> int:
    bits = 0
    for name in names:
        bits |= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()
    return bits


try:
    _keys = torch._C._dispatch_keys
    _others = ~_bits(_ORDINARY_KEYS)
    _dispatch_modes = torch._C._len_torch_dispatch_stack  # checkpointing policies, fake tensors, counters of operations
    _function_modes = torch._C._len_torch_function_stack
    _transforms = torch._C._are_functorch_transforms_active  # torch.func
    _tracer = torch._C._get_tracing_state  # torch.jit.trace
    _profiler = torch._C._autograd._profiler_enabled  # it shows operators by name
    _known = hasattr(forward_ad, "_current_level")
except AttributeError:
    _known = False


def are_ordinary(keys: Any) -> bool:
    """Whether a DispatchKeySet has none but an ordinary tensor's."""
    return _known and not keys.raw_repr() & _others


def straight(*tensors: Tensor) -> bool:
    """Whether nothing stands between a call on these tensors and the kernel; autograd does not count. Not for code that
    is being compiled."""
    if (not _known or _dispatch_modes() or _function_modes() or _transforms() or _tracer() is not None or _profiler()
            or forward_ad._current_level >= 0):
        return False
    for x in tensors:
        if type(x) not in _KINDS or _keys(x).raw_repr() & _others:
            return False
    return True
