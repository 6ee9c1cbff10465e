"""Keeping functions out of compiled graphs."""
from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def outside_graphs(function: Function) -> Function:
    """torch.compiler.disable, which imports torch's compiler where it is used: that takes longer than all of this
    package, so it is left until something has been compiled."""
    disabled: List[Callable[..., Any]] = []  # what torch.compiler.disable made of it, which takes longer than a call

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling() or "torch._dynamo" in sys.modules:
            if not disabled:
                disabled.append(torch.compiler.disable(function))
            return disabled[0](*arguments, **named)
        return function(*arguments, **named)

    return call  # type: ignore[return-value]
