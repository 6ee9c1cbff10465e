"""What is computed: Problem, and Dilated for LongNet patterns. Both are values: equal ones make equal plans."""
from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass
from typing import Any, Optional, Sequence, Tuple, Union

from . import _capi, _library
from .errors import ArgumentError


def choice(name: str, value: Any, table: dict) -> int:
    """The number of a named choice; the sentence of a refusal lists the names."""
    if isinstance(value, str) and value in table:
        return table[value]
    raise ArgumentError(f"{name} is {value!r}; it must be one of {', '.join(table)}")


def name_of(number: int, table: dict) -> str:
    return next(name for name, value in table.items() if value == number)


@dataclass(frozen=True)
class Dilated:
    """A dilated (LongNet) pattern: branches of (segment, rate); the other fields as in ra_problem.

    heads "all" (every head has every branch) or "groups"; offset "head", "block" or "group"; combine "lse" or "mean".
    """

    branches: Tuple[Tuple[int, int], ...]
    heads: str = "all"
    offset: str = "head"
    combine: str = "lse"

    @staticmethod
    def of(value: "DilatedLike") -> Optional["Dilated"]:
        """None, a Dilated, pairs of (segment, rate), or the command's text, "2048:1,16384:8"."""
        if value is None or isinstance(value, Dilated):
            return value
        if isinstance(value, str):
            try:
                value = [tuple(int(n) for n in branch.split(":")) for branch in value.split(",")]
            except ValueError:
                raise ArgumentError(f"dilated is {value!r}; it must be like 2048:1,16384:8") from None
        try:
            branches = tuple((int(segment), int(rate)) for segment, rate in value)
        except (TypeError, ValueError):
            raise ArgumentError(f"dilated is {value!r}; it must be pairs of (segment, rate), or a Dilated") from None
        return Dilated(branches)


DilatedLike = Union[None, Dilated, str, Sequence[Tuple[int, int]]]


def window_of(value: Any) -> Tuple[int, int]:
    """window as two ints; anything else is refused, lest a part of it be left out."""
    try:
        left, right = (operator.index(n) for n in value)
        return left, right
    except (TypeError, ValueError):
        raise ArgumentError(f"window is {value!r}; it must be (left, right): how many keys before and after its own a "
                            "query sees, -1 without limit") from None


def offsets(value: Any, name: str) -> Optional[Tuple[int, ...]]:
    """cu_seqlens of any kind of array as a tuple of ints. A tensor on a device is brought to the host."""
    if value is None:
        return None
    if hasattr(value, "tolist"):
        value = value.tolist()
    try:
        found = tuple(operator.index(n) for n in value)
    except TypeError:
        found = ()
    if len(found) < 2:
        raise ArgumentError(f"{name} is {value!r}; it must be a row of whole numbers, where documents start and where "
                            "the last one ends: [0, 3, 9] for documents of 3 and 6 tokens")
    return found


@dataclass(frozen=True)
class Problem:
    """What is computed, over the whole sequence and not per rank; every rank has the same.

        q [batch, seq_q, heads_q, dim]   k [batch, seq_k, heads_kv, dim]   v [batch, seq_k, heads_kv, dim_v]
        o [batch, seq_q, heads_q, dim_v]   lse [batch, heads_q, seq_q]

    seq_k, heads_kv and dim_v of zero are those of the queries; window is (left, right), -1 without limit; cu_seqlens
    has documents + 1 entries.
    """

    seq_q: int
    heads_q: int
    dim: int
    dtype: str = "f32"
    out_dtype: Optional[str] = None
    batch: int = 1
    seq_k: int = 0
    heads_kv: int = 0
    dim_v: int = 0
    scale: Optional[float] = None
    causal: bool = False
    window: Tuple[int, int] = (-1, -1)
    cu_seqlens: Optional[Tuple[int, ...]] = None
    cu_seqlens_k: Optional[Tuple[int, ...]] = None
    dilated: Optional[Dilated] = None

    def __post_init__(self) -> None:
        # Sequences of any kind are taken, and kept as what can be compared and hashed.
        set_field = lambda name, value: object.__setattr__(self, name, value)
        set_field("window", window_of(self.window))
        set_field("cu_seqlens", offsets(self.cu_seqlens, "cu_seqlens"))
        set_field("cu_seqlens_k", offsets(self.cu_seqlens_k, "cu_seqlens_k"))
        set_field("dilated", Dilated.of(self.dilated))
        set_field("seq_k", self.seq_k or self.seq_q)
        set_field("heads_kv", self.heads_kv or self.heads_q)
        set_field("dim_v", self.dim_v or self.dim)
        if self.batch < 1:  # in C zero stands for one
            raise ArgumentError(f"batch is {self.batch}; it must be at least 1: leave calls without sequences out, on "
                                "all ranks")
        if self.cu_seqlens_k is not None and self.cu_seqlens is None:
            raise ArgumentError("cu_seqlens_k is given without cu_seqlens")
        if self.cu_seqlens_k is not None and len(self.cu_seqlens_k) != len(self.cu_seqlens or ()):
            raise ArgumentError("cu_seqlens and cu_seqlens_k differ in length; both have one entry more than documents")

    def to_c(self) -> _capi.Problem:
        """The ra_problem. It holds the arrays it points to."""
        problem = _capi.Problem()
        _library.core().ra_problem_init(ctypes.byref(problem))
        problem.dtype = choice("dtype", self.dtype, _capi.DTYPES)
        problem.out_dtype = 0 if self.out_dtype is None else choice("out_dtype", self.out_dtype, _capi.DTYPES)
        problem.batch, problem.seq_q, problem.seq_k = self.batch, self.seq_q, self.seq_k
        problem.heads_q, problem.heads_kv = self.heads_q, self.heads_kv
        problem.dim, problem.dim_v = self.dim, self.dim_v
        problem.scale = _capi.SCALE_DEFAULT if self.scale is None else float(self.scale)
        problem.causal = bool(self.causal)
        problem.window_left, problem.window_right = self.window
        if self.cu_seqlens is not None:
            problem.documents = len(self.cu_seqlens) - 1
            problem.cu_seqlens_q = (ctypes.c_int64 * len(self.cu_seqlens))(*self.cu_seqlens)
        if self.cu_seqlens_k is not None:
            problem.cu_seqlens_k = (ctypes.c_int64 * len(self.cu_seqlens_k))(*self.cu_seqlens_k)
        if self.dilated is not None:
            self._dilate(problem, self.dilated)
        return problem

    @staticmethod
    def _dilate(problem: _capi.Problem, pattern: Dilated) -> None:
        problem.branches = len(pattern.branches)
        problem.dilated = (_capi.Branch * len(pattern.branches))(*pattern.branches)
        problem.dilated_heads = choice("dilated.heads", pattern.heads, _capi.DILATED_HEADS)
        problem.dilated_offset = choice("dilated.offset", pattern.offset, _capi.DILATED_OFFSETS)
        problem.dilated_combine = choice("dilated.combine", pattern.combine, _capi.DILATED_COMBINES)
