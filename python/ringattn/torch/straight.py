"""Whether a call of an operator may go straight to its kernel.

torch's dispatcher takes about 10 us to bring a call of Python to a kernel in Python, twice that with a gradient. All it
does on the way is to look for what may stand between: modes, transforms, subclasses, a tracer, a profiler, tangents,
tensors that are negated when they are read. Where there is none of these, straight() says so, in under a microsecond,
and the caller may leave the dispatcher out. A torch that lacks one of the questions below gets no for an answer.
"""
from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

_KINDS = (Tensor, torch.nn.Parameter)

try:
    _dispatch_modes = torch._C._len_torch_dispatch_stack  # checkpointing policies, fake tensors, counters of operations
    _function_modes = torch._C._len_torch_function_stack
    _transforms = torch._C._are_functorch_transforms_active  # torch.func
    _tracer = torch._C._get_tracing_state  # torch.jit.trace
    _profiler = torch._C._autograd._profiler_enabled  # it shows operators by name
    _known = hasattr(forward_ad, "_current_level")
except AttributeError:
    _known = False


def _plain(x: Tensor) -> bool:
    return type(x) in _KINDS and x.layout is torch.strided and not x.is_neg()


def straight(*tensors: Tensor) -> bool:
    """Whether nothing stands between a call on these tensors and the kernel; autograd does not count. Not for code that
    is being compiled."""
    return (_known and all(map(_plain, tensors)) and not _dispatch_modes() and not _function_modes()
            and not _transforms() and _tracer() is None and not _profiler() and forward_ad._current_level < 0)
