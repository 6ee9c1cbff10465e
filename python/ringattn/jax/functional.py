"""attention for arrays inside shard_map: a foreign function with a gradient of its own.

What is computed, and which devices are the ranks, goes along with each call as a text, so that a compiled program needs
nothing of the process that compiled it.
"""
from __future__ import annotations

import functools
import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

import jax
import jax.numpy as jnp

from ..errors import ArgumentError, UnsupportedError
from ..layout import layout_positions
from ..problem import Dilated, DilatedLike, Problem
from . import ranks

_DTYPES = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def order(n: int, ranks: int, layout: str, cu_seqlens: Optional[Sequence[int]] = None) -> Any:
    """[n] int32: the positions of rank 0, then those of rank 1, ... x[:, order] cut into equal runs is in that layout;
    jnp.argsort(order) brings results back. The layout "documents" needs cu_seqlens, (0, n) for one document."""
    positions = [layout_positions(layout, n, ranks, rank, cu_seqlens) for rank in range(ranks)]
    return jnp.concatenate([jnp.asarray(own, jnp.int32) for own in positions])


def _groups(mesh: Any, axis: Optional[str]) -> List[List[int]]:
    """For each place along the other axes of the mesh the ordinals of its ranks, in rank order."""
    if mesh is None:
        return []
    if axis not in mesh.axis_names:
        raise ArgumentError(f"axis is {axis!r}; it must be one of the mesh's, {', '.join(map(repr, mesh.axis_names))}")
    devices = mesh.devices
    if any(device.process_index != jax.process_index() for device in devices.flat):
        raise UnsupportedError("the mesh has devices of other processes; in JAX the ranks are devices of one process")
    kind = devices.flat[0].platform
    ordinal = lambda device: device.id if kind == "cpu" else device.local_hardware_id
    at = list(mesh.axis_names).index(axis)
    rows = devices.swapaxes(at, -1).reshape(-1, devices.shape[at])
    return [[int(ordinal(device)) for device in row] for row in rows]


def _size_here(axis: Optional[str]) -> Optional[int]:
    """How many devices shard_map has cut the axis over; None outside of it."""
    try:
        return int(jax.lax.psum(1, axis))
    except NameError:
        return None


def _describe(q: Any, k: Any, v: Any, mesh: Any, axis: Optional[str], layout: str, strategy: str, timeout: float,
              pattern: Dict[str, Any]) -> str:
    """The call as a text. Sizes are those of the whole sequence, which shard_map has cut into equal runs; every layout
    gives the ranks the same number of rows where that can be."""
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4:
        raise ArgumentError(f"q, k, v have {q.ndim}, {k.ndim}, {v.ndim} dimensions; they are [batch, rows, heads, dim]")
    if str(q.dtype) not in _DTYPES or not q.dtype == k.dtype == v.dtype:
        raise ArgumentError(f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}; "
                            "they must be of one type: float64, float32, bfloat16 or float16")
    groups = _groups(mesh, axis)
    count = len(groups[0]) if groups else 1
    if groups and _size_here(axis) != count:
        raise ArgumentError(f"axis {axis!r} is not cut over {count} devices here; "
                            "call it inside jax.shard_map over mesh")
    sizes = dict(batch=q.shape[0], seq_q=q.shape[1] * count, seq_k=k.shape[1] * count, heads_q=q.shape[2],
                 heads_kv=k.shape[2], dim=q.shape[3], dim_v=v.shape[3], dtype=_DTYPES[str(q.dtype)])
    Problem(**sizes, **pattern)  # refuses here what would be refused when it runs
    dilated = Dilated.of(pattern["dilated"])
    pattern = {**pattern, "dilated": None if dilated is None else [dilated.branches, dilated.heads, dilated.offset,
                                                                     dilated.combine]}
    return json.dumps({"problem": {**sizes, **pattern}, "groups": groups, "layout": layout, "strategy": strategy,
                       "timeout": timeout}, sort_keys=True)


def _axes(x: Any) -> frozenset:
    """The axes of the mesh that x varies over, where this JAX keeps account of them."""
    kind = jax.typeof(x) if hasattr(jax, "typeof") else None
    return kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else getattr(kind, "vma", frozenset())


def _call(name: str, inputs: Sequence[Any], shapes: Sequence[Tuple[Sequence[int], Any]], what: str,
          training: bool) -> List[Any]:
    """The foreign function's results, which vary over the mesh as its inputs do."""
    ranks.register()
    outs = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in shapes]
    results = jax.ffi.ffi_call(name, outs)(*inputs, what=what, training="yes" if training else "no")
    axes = frozenset().union(*map(_axes, inputs))
    return [_varying(x, tuple(axes - _axes(x))) for x in results]


def _varying(x: Any, axes: Tuple[str, ...]) -> Any:
    if not axes:
        return x
    return jax.lax.pcast(x, axes, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(x, axes)


def _forward(q: Any, k: Any, v: Any, what: str, training: bool) -> Tuple[Any, Any]:
    o = ((*q.shape[:3], v.shape[3]), q.dtype)
    lse = ((q.shape[0], q.shape[2], q.shape[1]), jnp.float64 if q.dtype == jnp.float64 else jnp.float32)
    return tuple(_call(ranks.FORWARD, (q, k, v), (o, lse), what, training))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attention(q: Any, k: Any, v: Any, what: str) -> Tuple[Any, Any]:
    return _forward(q, k, v, what, False)


def _attention_forward(q: Any, k: Any, v: Any, what: str) -> Tuple[Any, Any]:
    o, lse = _forward(q, k, v, what, True)
    return (o, lse), (q, k, v, o, lse)


def _attention_backward(what: str, saved: Tuple, gradients: Tuple) -> Tuple[Any, Any, Any]:
    shapes = [(x.shape, x.dtype) for x in saved[:3]]
    return tuple(_call(ranks.BACKWARD, (gradients[0], *saved), shapes, what, True))


_attention.defvjp(_attention_forward, _attention_backward)


def attention(q: Any, k: Any, v: Any, *, mesh: Any = None, axis: Optional[str] = None, causal: bool = False,
              window: Tuple[int, int] = (-1, -1), scale: Optional[float] = None,
              cu_seqlens: Optional[Sequence[int]] = None, cu_seqlens_k: Optional[Sequence[int]] = None,
              dilated: DilatedLike = None, layout: str = "contiguous", strategy: str = "auto", timeout: float = 60,
              return_lse: bool = False) -> Any:
    """Exact attention of a sequence that shard_map has cut along `axis` of `mesh`; without a mesh, of a whole one.

        q [B, rows, H, D], k [B, rows_k, Hkv, D], v [B, rows_k, Hkv, Dv]: this device's  ->  o [B, rows, H, Dv]

    Called inside jax.shard_map over that mesh, whose devices are all of this process. shard_map cuts into equal runs,
    which is layout "contiguous"; for the others bring the positions into their order first: see order().
    cu_seqlens are plain numbers, not traced: new ones compile anew. The other arguments are those of
    ringattn.attention. return_lse: also lse [B, H, rows], through which no gradient flows.

    The ranks meet in every call, so calls must come in one order on all devices: each must need a result of the one
    before, as those of a model's layers do.
    """
    pattern = dict(causal=bool(causal), window=tuple(int(n) for n in window),
                   scale=None if scale is None else float(scale), dilated=dilated,
                   cu_seqlens=None if cu_seqlens is None else tuple(int(n) for n in cu_seqlens),
                   cu_seqlens_k=None if cu_seqlens_k is None else tuple(int(n) for n in cu_seqlens_k))
    o, lse = _attention(q, k, v, _describe(q, k, v, mesh, axis, layout, strategy, timeout, pattern))
    return (o, jax.lax.stop_gradient(lse)) if return_lse else o
