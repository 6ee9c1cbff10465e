"""Run by test_gpu.py in a process of its own: ringattn.jax on a GPU, forward and backward, against the definition."""
import os
import pathlib
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import reference  # noqa: E402

import ringattn.jax as rj  # noqa: E402


def main():
    if jax.default_backend() != "gpu":
        print("no GPU")
        return
    rng = np.random.default_rng(1)
    sizes = dict(batch=1, seq_q=300, seq_k=300, heads_q=4, heads_kv=2, dim=64, dim_v=64)
    for dtype, bound in (("float32", 5e-6), ("bfloat16", 3e-2)):
        q, k, v, dout = (jnp.asarray(x, dtype) for x in reference.arrays(rng, sizes, "float32"))
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("cp",))
        rows = jax.sharding.PartitionSpec(None, "cp")
        f = jax.jit(jax.shard_map(lambda *x: rj.attention(*x, mesh=mesh, axis="cp", causal=True, window=(100, 0)),
                                  mesh=mesh, in_specs=rows, out_specs=rows))
        o, back = jax.vjp(f, q, k, v)
        want = reference.attention(*(x.astype("float32") for x in (q, k, v, dout)), causal=True, window=(100, 0))
        for got, expected in zip((o, *back(dout)), (want[0], *want[2:])):
            assert reference.furthest(got.astype("float32"), expected) < bound, dtype
        print(f"shown: {dtype} on {jax.devices()[0]}")


if __name__ == "__main__":
    main()
