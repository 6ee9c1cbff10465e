"""JAX: a layer of attention inside shard_map, with the sequence cut over four devices; trained a few steps.

    python jax_attention.py             # four devices of the CPU; on GPUs the mesh is those of this process
"""
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

import ringattn.jax as rj

TOKENS, HEADS, DIM = 256, 4, 16
mesh = Mesh(np.array(jax.devices()), ("cp",))
ROWS = P(None, "cp")


def layer(weights, x):
    """x [1, rows, HEADS * DIM], this device's; weights are on every device."""
    split = lambda y: y.reshape(*y.shape[:2], HEADS, DIM)
    q, k, v = (split(x @ weight) for weight in weights)
    o = rj.attention(q, k, v, mesh=mesh, axis="cp", causal=True)
    return x + o.reshape(x.shape)


def loss(weights, x, target):
    out = jax.shard_map(layer, mesh=mesh, in_specs=(P(), ROWS), out_specs=ROWS)(weights, x)
    return jnp.square(out - target).mean()


def main():
    keys = jax.random.split(jax.random.key(0), 5)
    weights = [jax.random.normal(key, (HEADS * DIM, HEADS * DIM)) * 0.1 for key in keys[:3]]
    x, target = (jax.random.normal(key, (1, TOKENS, HEADS * DIM)) for key in keys[3:])
    step = jax.jit(jax.value_and_grad(loss))
    print(f"{TOKENS} tokens on {mesh.size} devices")
    for number in range(5):
        value, gradients = step(weights, x, target)
        weights = [weight - 0.5 * gradient for weight, gradient in zip(weights, gradients)]
        print(f"step {number}: loss {value:.5f}")


if __name__ == "__main__":
    main()
