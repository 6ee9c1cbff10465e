"""Where rows live: which positions of a sequence a rank has, and arrays cut and put together by that."""
from __future__ import annotations

import ctypes
import functools
from typing import Any, List, Optional, Sequence, Tuple, Union

from . import _arrays, _capi, _library
from .errors import ArgumentError, check
from .problem import Problem, choice, name_of, offsets

Offsets = Optional[Tuple[int, ...]]
Rows = Union[slice, Any]  # or [rows] int64, a numpy array


def layout_rows(layout: str, n: int, ranks: int, rank: int) -> int:
    """How many of n positions a rank has."""
    rows = _library.core().ra_layout_rows(choice("layout", layout, _capi.LAYOUTS), n, ranks, rank)
    if rows < 0:
        raise ArgumentError(f"layout {layout}, n {n}, ranks {ranks}, rank {rank}: auto must be resolved first "
                            "(layout_resolve), n be at least 1 and rank one of the ranks")
    return rows


@functools.lru_cache(maxsize=16)  # for the arrays of one call: a long sequence's are many megabytes
def _positions(layout: str, n: int, ranks: int, rank: int, cu_seqlens: Offsets = None) -> Any:
    """[rows] int64, which must not be written to."""
    import numpy

    out = numpy.empty(layout_rows(layout, n, ranks, rank), numpy.int64)
    pointer = out.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
    if cu_seqlens is None and layout == "documents":
        raise ArgumentError("who has which row in layout documents depends on the documents: give cu_seqlens")
    if cu_seqlens is None:
        check(_library.core().ra_layout_positions(_capi.LAYOUTS[layout], n, ranks, rank, pointer))
    else:
        cu = (ctypes.c_int64 * len(cu_seqlens))(*cu_seqlens)
        check(_library.core().ra_packed_positions(_capi.LAYOUTS[layout], n, len(cu_seqlens) - 1, cu, ranks, rank,
                                                  pointer))
    out.flags.writeable = False
    return out


def layout_positions(layout: str, n: int, ranks: int, rank: int, cu_seqlens: Any = None) -> Any:
    """[rows] int64, increasing: the positions that a rank has, which a rotary embedding needs.

    cu_seqlens: where documents start and end; the layout "documents" needs them.
    """
    return _positions(layout, n, ranks, rank, offsets(cu_seqlens, "cu_seqlens")).copy()


def layout_resolve(problem: Problem, ranks: int, layout: str = "auto", strategy: str = "auto") -> str:
    """The layout that "auto" means for this problem; any other is what it is."""
    from .plan import make_options

    if layout != "auto":
        choice("layout", layout, _capi.LAYOUTS)
        return layout
    out = ctypes.c_int()
    options = make_options(layout=layout, strategy=strategy)
    check(_library.core().ra_layout_resolve(problem.to_c(), options, ranks, ctypes.byref(out)))
    return name_of(out.value, _capi.LAYOUTS)


def index(layout: str, n: int, ranks: int, rank: int, cu_seqlens: Offsets = None) -> Rows:
    """The positions as a slice where they are evenly spaced, so that an array is cut without a copy."""
    rows = layout_rows(layout, n, ranks, rank)
    if ranks == 1:
        return slice(0, n)
    if rows == 0:
        return slice(0, 0)
    if layout == "striped":
        return slice(rank, n, ranks)
    positions = _positions(layout, n, ranks, rank, cu_seqlens)
    if positions[-1] - positions[0] == rows - 1:
        return slice(positions[0], positions[-1] + 1)
    return positions


def _index_for(x: Any, rows: Any) -> Any:
    """Rows that are no slice, as x is indexed by."""
    if _arrays.is_torch(x):
        import torch

        return torch.tensor(rows, device=x.device)
    return rows if _arrays.is_numpy(x) else rows.tolist()


def select(x: Any, axis: int, rows: Rows) -> Any:
    """x's rows along axis: a view for a slice, else a copy."""
    if isinstance(rows, slice):
        return x[(slice(None),) * axis + (rows,)]
    if _arrays.is_torch(x):
        return x.index_select(axis, _index_for(x, rows))
    return x.take(_index_for(x, rows), axis)


def assign(whole: Any, axis: int, rows: Rows, x: Any) -> None:
    """The way back: writes x to the rows of whole along axis."""
    where = rows if isinstance(rows, slice) else _index_for(whole, rows)
    whole[(slice(None),) * axis + (where,)] = x


def _axis_of(x: Any, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ArgumentError(f"axis {axis} is none of an array of shape {list(x.shape)}")
    return axis % x.ndim


def shard(x: Any, axis: int = 1, *, layout: str, ranks: int, rank: int, cu_seqlens: Any = None) -> Any:
    """A rank's rows of x along axis: a view where they are evenly spaced (contiguous, striped), else a copy.

    cu_seqlens: where documents start and end; the layout "documents" needs them.
    """
    x = _arrays.as_array(x)
    x = _arrays.indexable(x, "x") if not (_arrays.is_torch(x) or _arrays.is_numpy(x)) else x
    axis = _axis_of(x, axis)
    return select(x, axis, index(layout, x.shape[axis], ranks, rank, offsets(cu_seqlens, "cu_seqlens")))


def unshard(shards: Sequence[Any], axis: int = 1, *, layout: str, out: Optional[Any] = None,
            cu_seqlens: Any = None) -> Any:
    """The whole array from every rank's rows, in rank order; cu_seqlens as in shard."""
    documents = offsets(cu_seqlens, "cu_seqlens")
    arrays: List[Any] = [_arrays.as_array(x) for x in shards]
    if not arrays:
        raise ArgumentError("unshard needs the rows of every rank")
    axis = _axis_of(arrays[0], axis)
    n = sum(x.shape[axis] for x in arrays)
    shape = list(arrays[0].shape)
    shape[axis] = n
    if out is None:
        out = _new_like(arrays[0], shape)
    for rank, x in enumerate(arrays):
        rows = layout_rows(layout, n, len(arrays), rank)
        if x.shape[axis] != rows:
            raise ArgumentError(f"rank {rank} of {len(arrays)} has {rows} of {n} rows in layout {layout}, "
                                f"but {x.shape[axis]} are given")
        if rows:
            assign(out, axis, index(layout, n, len(arrays), rank, documents), x)
    return out


def _new_like(x: Any, shape: Sequence[int]) -> Any:
    if _arrays.is_torch(x):
        return x.new_empty(tuple(shape))
    import numpy

    return numpy.empty(tuple(shape), dtype=x.dtype)
