"""ringattn.jax inside shard_map, with four devices of the CPU as ranks, against the definition."""
import os
import pathlib
import subprocess
import sys

if "jax" not in sys.modules:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4 " + os.environ.get("XLA_FLAGS", "")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_ENABLE_X64", "1")

import numpy as np
import pytest
import reference
from test_capi import COMPILER, needs_compiler

jax = pytest.importorskip("jax", reason="jax is not installed")
if not hasattr(jax, "shard_map") or not hasattr(jax.ffi, "ffi_call"):
    pytest.skip("this jax has no shard_map or ffi", allow_module_level=True)
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, PartitionSpec as P  # noqa: E402
import ringattn  # noqa: E402
import ringattn.jax as rj  # noqa: E402
from ringattn.jax import _ffi  # noqa: E402

SWEEP = int(os.environ.get("RINGATTN_SWEEP", "24")) // 2
ROWS = P(None, "cp")


def mesh_of(ranks):
    return Mesh(np.array(jax.devices()[:ranks]), ("cp",))


def over(ranks, layout="contiguous", **pattern):
    """attention of whole arrays, cut over the ranks; positions in the order of the layout."""
    mesh = mesh_of(ranks)
    call = jax.shard_map(lambda q, k, v: rj.attention(q, k, v, mesh=mesh, axis="cp", layout=layout, **pattern),
                         mesh=mesh, in_specs=ROWS, out_specs=ROWS)

    def f(q, k, v):
        cu = pattern.get("cu_seqlens", (0, q.shape[1]))
        rows = rj.order(q.shape[1], ranks, layout, cu)
        keys = rj.order(k.shape[1], ranks, layout, pattern.get("cu_seqlens_k", cu if len(cu) > 2 else (0, k.shape[1])))
        return call(q[:, rows], k[:, keys], v[:, keys])[:, jnp.argsort(rows)]

    return jax.jit(f)


@pytest.mark.parametrize("seed", range(SWEEP))
def test_random_problems(seed):
    rng = np.random.default_rng(7000 + seed)
    sizes, pattern = reference.random_problem(rng, most=30)
    ranks, layout = int(rng.choice([1, 2, 4])), str(rng.choice(["contiguous", "zigzag", "striped", "documents"]))
    for name in ("seq_q", "seq_k"):  # shard_map cuts into equal runs
        sizes[name] = -(-sizes[name] // ranks) * ranks
    for name, n in (("cu_seqlens", "seq_q"), ("cu_seqlens_k", "seq_k")):
        if name in pattern:
            pattern[name][-1] = sizes[n]
    dtype, bound = ("float64", 1e-10) if rng.random() < 0.5 else ("float32", 5e-6)
    q, k, v, dout = reference.arrays(rng, sizes, dtype)
    want = reference.attention(q, k, v, dout, **pattern)
    f = over(ranks, layout, **pattern)
    o, back = jax.vjp(f, q, k, v)
    for name, got, expected in zip(("o", "dq", "dk", "dv"), (o, *back(jnp.asarray(dout))), (want[0], *want[2:])):
        assert reference.furthest(got, expected) < bound, (name, sizes, pattern, ranks, layout)
    assert reference.furthest(f(q, k, v), want[0]) < bound


def arrays(n=16, heads=2, dtype="float64"):
    return reference.arrays(np.random.default_rng(3), dict(batch=2, seq_q=n, seq_k=n, heads_q=heads, heads_kv=heads,
                                                           dim=8, dim_v=8), dtype)


def test_layers_in_a_scan():
    """One call for each layer, each of the result of the one before; gradients through all of them."""
    mesh = mesh_of(4)
    x, *_ = arrays()
    layer = lambda x: x + rj.attention(x, x, x, mesh=mesh, axis="cp", causal=True)
    many = jax.shard_map(lambda x: jax.lax.scan(lambda x, _: (layer(x), None), x, length=3)[0],
                         mesh=mesh, in_specs=ROWS, out_specs=ROWS)

    def by_hand(x):
        for _ in range(3):
            s = jnp.einsum("bihd,bjhd->bhij", x, x) / np.sqrt(8)
            s = jnp.where(np.tril(np.ones((16, 16), bool)), s, -jnp.inf)
            x = x + jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(s), x)
        return x

    value, gradient = jax.jit(jax.value_and_grad(lambda x: (many(x) ** 2).sum()))(x)
    want_value, want_gradient = jax.value_and_grad(lambda x: (by_hand(x) ** 2).sum())(x)
    assert abs(value - want_value) < 1e-10 * abs(want_value)
    assert reference.furthest(gradient, want_gradient) < 1e-10


def test_two_sequences_on_two_ranks_each():
    """A mesh of two axes: the batch over one, each sequence over the other."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("dp", "cp"))
    q, k, v, dout = arrays()
    f = jax.shard_map(lambda *x: rj.attention(*x, mesh=mesh, axis="cp", window=(5, 2), return_lse=True), mesh=mesh,
                      in_specs=P("dp", "cp"), out_specs=(P("dp", "cp"), P("dp", None, "cp")))
    (o, lse), back = jax.vjp(jax.jit(f), q, k, v)
    want = reference.attention(q, k, v, dout, window=(5, 2))
    for got, expected in zip((o, lse, *back((dout, jnp.ones_like(lse)))), want):
        assert reference.furthest(got, expected) < 1e-10


def test_one_device_without_a_mesh():
    q, k, v, _ = arrays(dtype="float32")
    assert reference.furthest(rj.attention(q, k, v, causal=True), reference.attention(q, k, v, causal=True)[0]) < 5e-6
    half = [jnp.asarray(x, jnp.bfloat16) for x in (q, k, v)]
    got = jax.jit(lambda *x: rj.attention(*x, causal=True))(*half)
    assert got.dtype == jnp.bfloat16
    assert reference.furthest(got.astype("float32"), reference.attention(q, k, v, causal=True)[0]) < 4e-2


def test_refusals():
    q, k, v, _ = arrays()
    with pytest.raises(ringattn.ArgumentError, match="one of the mesh's, 'cp'"):
        rj.attention(q, k, v, mesh=mesh_of(2), axis="tp")
    with pytest.raises(ringattn.ArgumentError, match="inside jax.shard_map"):
        rj.attention(q, k, v, mesh=mesh_of(2), axis="cp")
    with pytest.raises(ringattn.ArgumentError, match="of one type"):
        rj.attention(q, k, v.astype("float32"))
    with pytest.raises(ringattn.ArgumentError, match="cu_seqlens"):
        rj.attention(q, k, v, cu_seqlens_k=[0, 16])


def test_errors_have_the_librarys_sentence_and_cost_nothing_else():
    """Documents in a batch of two are refused by the library when the call runs, on every rank; the next call works."""
    q, k, v, _ = arrays()
    with pytest.raises(Exception, match="batch"):
        jax.block_until_ready(over(2, cu_seqlens=[0, 5, 16])(q, k, v))
    assert reference.furthest(over(2)(q, k, v), reference.attention(q, k, v)[0]) < 1e-10


@needs_compiler
def test_offsets(tmp_path):
    """What ctypes takes XLA's structures for is what a C compiler makes of jaxlib's header."""
    lines, expected = ["#include <stddef.h>", "#include <stdio.h>", "#include <xla/ffi/api/c_api.h>"], []
    lines.append("int main(void) {")
    for name, kind in _ffi.STRUCTURES.items():
        for field, *_ in kind._fields_:
            about = getattr(kind, field)
            lines.append(f'printf("%zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
            expected.append((name, field, f"{about.offset} {about.size}"))
    lines.append('printf("%d %d\\n", XLA_FFI_Extension_Metadata, XLA_FFI_ExecutionStage_EXECUTE);')
    expected.append(("the numbers", "", f"{_ffi.METADATA} {_ffi.EXECUTE}"))
    source = tmp_path / "offsets.c"
    source.write_text("\n".join(lines + ["return 0; }"]))
    subprocess.run([COMPILER, "-std=c17", f"-I{pathlib.Path(jax.ffi.include_dir())}", source, "-o",
                    tmp_path / "offsets"], check=True)
    printed = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True).stdout.splitlines()
    for line, (name, field, value) in zip(printed, expected):
        assert line == value, (name, field)
    assert len(printed) == len(expected)


UNASKED = """
import jax, numpy as np, ringattn.jax as rj
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("cp",))
q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 4096, 4, 32))
f = jax.jit(jax.shard_map(lambda q, k, v: rj.attention(q, k, v, mesh=mesh, axis="cp", causal=True),
                          mesh=mesh, in_specs=P(None, "cp"), out_specs=P(None, "cp")))
"""


@pytest.mark.parametrize("last", ["o = f(q, k, v)", "f(q, k, v)", "f(q, k, v)"])
def test_a_program_ends_before_it_has_asked_for_a_result(last):
    """JAX does not wait for it, and its threads must not come to Python when that has ended."""
    subprocess.run([sys.executable, "-c", UNASKED + last], check=True, timeout=60,
                   env={**os.environ, "JAX_ENABLE_X64": "0"})
