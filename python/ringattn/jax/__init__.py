"""ringattn for JAX: attention inside shard_map, over devices of one process that are the ranks.

    import ringattn.jax as rj
    mesh = jax.make_mesh((4,), ("cp",))
    f = jax.shard_map(lambda q, k, v: rj.attention(q, k, v, mesh=mesh, axis="cp", causal=True),
                      mesh=mesh, in_specs=P(None, "cp"), out_specs=P(None, "cp"))
    o = jax.jit(f)(q, k, v)                                                        # [B, S, H, D], gradients by jax.grad

docs/python.md says what a program must keep to.
"""
from .functional import attention, order

__all__ = ["attention", "order"]
