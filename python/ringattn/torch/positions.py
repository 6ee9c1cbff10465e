"""Positions of ranks as tensors, kept for the next layer and step."""
from __future__ import annotations

from collections import OrderedDict
import threading
from typing import Any, Hashable, Optional, Tuple

import torch

from ..layout import layout_positions

_positions: "OrderedDict[Hashable, torch.Tensor]" = OrderedDict()  # made lately
POSITIONS_KEPT, ROWS_KEPT = 64, 1 << 22  # so many tensors, with so many rows together, 8 bytes each
_keeping = threading.Lock()


def kept_positions(layout: str, n: int, ranks: int, rank: int, device: Optional[Any],
                   documents: Optional[Tuple[int, ...]]) -> torch.Tensor:
    """[rows] int64: which of n positions a rank has. Not to be written to: the tensors are kept."""
    device = torch.device(device if device is not None else "cpu")
    key = (layout, n, ranks, rank, device, documents)
    found = _positions.get(key)
    if found is None:
        with torch.inference_mode(False):  # it may be used in a graph later
            found = torch.from_numpy(layout_positions(layout, n, ranks, rank, documents)).to(device)
        if type(found) is torch.Tensor:  # and no fake one
            _keep(key, found)
    return found


def _keep(key: Hashable, made: torch.Tensor) -> None:
    """The newest stay, within both limits; one tensor stays whatever its size."""
    with _keeping:
        _positions[key] = made
        rows = sum(len(x) for x in _positions.values())
        while len(_positions) > POSITIONS_KEPT or (rows > ROWS_KEPT and len(_positions) > 1):
            rows -= len(_positions.popitem(last=False)[1])
