"""Attention over numpy arrays with the sequence cut over four threads: forward, backward, and what a plan will cost.

    python arrays.py
"""
import numpy as np
import ringattn

rng = np.random.default_rng(0)
q = rng.standard_normal((1, 3000, 8, 64), dtype=np.float32)        # [batch, tokens, heads, dim]
k, v = (rng.standard_normal((1, 3000, 2, 64), dtype=np.float32) for _ in range(2))  # two heads of keys: grouped queries

o, lse = ringattn.attention(q, k, v, causal=True, window=(1024, -1), ranks=4, return_lse=True)
dout = np.broadcast_to(np.float32(1), o.shape)                       # the gradient of a sum; no memory of its own
dq, dk, dv = ringattn.attention_backward(q, k, v, o, lse, dout, causal=True, window=(1024, -1), ranks=4)

# o is linear in v, so <dout, o> = <dv, v>: a check that needs no second implementation.
left, right = float(o.sum(dtype=np.float64)), float((dv.astype(np.float64) * v).sum())
print(f"<dout, o> = {left:.6f}, <dv, v> = {right:.6f}")
assert abs(left - right) < 1e-4 * max(1, abs(left))

problem = ringattn.Problem(seq_q=1 << 20, heads_q=32, heads_kv=8, dim=128, dtype="bf16", causal=True)
print("a million tokens:  ranks   workspace of a rank   sent by a rank")
for ranks in (4, 8, 16):
    plan = ringattn.predict(problem, ranks, backward=True, threads=1)
    print(f"{ranks:24} {plan.workspace_bytes / 2**30:17.2f} GiB {plan.forward.bytes_planned / 2**30:12.2f} GiB")
