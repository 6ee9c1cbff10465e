"""The definition of attention in numpy and double precision, written down plainly: what the package is compared
with."""
import numpy as np


def visible(seq_q, seq_k, heads, causal=False, window=(-1, -1), cu_seqlens=None, cu_seqlens_k=None, dilated=None):
    """[branches, heads, seq_q, seq_k] of 0 and 1: what each query sees, in each branch (one where there is no
    dilation)."""
    cu_q = list(cu_seqlens) if cu_seqlens is not None else [0, seq_q]
    cu_k = list(cu_seqlens_k) if cu_seqlens_k is not None else (cu_q if cu_seqlens is not None else [0, seq_k])
    branches = dilated or [(max(seq_k, 1), 1)]
    seen = np.zeros((len(branches), heads, seq_q, seq_k))
    for q0, q1, k0, k1 in zip(cu_q, cu_q[1:], cu_k, cu_k[1:]):
        keys = np.arange(k1 - k0)
        for i in range(q1 - q0):
            at = i + (k1 - k0) - (q1 - q0)  # aligned bottom right
            kept = np.ones(len(keys), bool)
            if causal:
                kept &= keys <= at
            if window[0] >= 0:
                kept &= keys >= at - window[0]
            if window[1] >= 0:
                kept &= keys <= at + window[1]
            for b, (segment, rate) in enumerate(branches):
                for h in range(heads):
                    mine = kept
                    if dilated:
                        offset = h % rate
                        if at % segment % rate != offset:
                            continue
                        mine = kept & (keys // segment == at // segment) & (keys % segment % rate == offset)
                    seen[b, h, q0 + i, k0:k1] = mine
    return seen


def attention(q, k, v, dout=None, scale=None, **pattern):
    """q [B, Sq, H, D], k, v [B, Sk, Hkv, .] in any type; o, lse and, with dout, dq, dk, dv, all in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    kk, vv = np.repeat(k, group, 2), np.repeat(v, group, 2)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    weight = visible(q.shape[1], k.shape[1], q.shape[2], **pattern).sum(0)  # how often a key counts
    s = np.einsum("bihd,bjhd->bhij", q, kk) * scale
    most = np.where(weight > 0, s, -np.inf).max(-1, initial=-np.inf)[..., None]
    e = np.where(weight > 0, np.exp(s - np.where(np.isfinite(most), most, 0)), 0) * weight
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total > 0, total, 1)
    with np.errstate(divide="ignore"):
        lse = np.log(total[..., 0]) + most[..., 0]
    o = np.einsum("bhij,bjhd->bihd", p, vv)
    if dout is None:
        return o, lse
    dout = np.asarray(dout, np.float64)
    dp = np.einsum("bihd,bjhd->bhij", dout, vv)
    ds = p * (dp - np.einsum("bihd,bihd->bhi", dout, o)[..., None]) * scale
    reduce = lambda x: x.reshape(*x.shape[:2], k.shape[2], group, -1).sum(3)
    return (o, lse, np.einsum("bhij,bjhd->bihd", ds, kk), reduce(np.einsum("bhij,bihd->bjhd", ds, q)),
            reduce(np.einsum("bhij,bihd->bjhd", p, dout)))


def random_problem(rng, most=70):
    """Arrays' sizes and a pattern, from all that the package takes."""
    heads_kv = int(rng.integers(1, 4))
    sizes = dict(batch=int(rng.integers(1, 3)), seq_q=int(rng.integers(1, most)), heads_kv=heads_kv,
                 heads_q=heads_kv * int(rng.integers(1, 4)), dim=int(rng.integers(1, 40)), dim_v=int(rng.integers(1,
                                                                                                                  40)))
    sizes["seq_k"] = sizes["seq_q"] if rng.random() < 0.6 else int(rng.integers(1, most))
    pattern = dict(causal=bool(rng.random() < 0.5))
    if rng.random() < 0.3:
        pattern["window"] = tuple(int(rng.integers(-1, 20)) for _ in range(2))
    if rng.random() < 0.3:
        pattern["scale"] = float(rng.choice([0.0, 0.3, -0.2]))
    if rng.random() < 0.35:
        sizes["batch"] = 1
        cuts = lambda n, count: [0, *sorted(int(rng.integers(0, n + 1)) for _ in range(count)), n]
        count = int(rng.integers(0, 4))
        pattern["cu_seqlens"] = cuts(sizes["seq_q"], count)
        pattern["cu_seqlens_k"] = cuts(sizes["seq_k"], count)
    if rng.random() < 0.25:
        pattern["dilated"] = [(int(rng.integers(1, 40)), int(rng.integers(1, 5)))
                              for _ in range(int(rng.integers(1, 4)))]
    return sizes, pattern


def arrays(rng, sizes, dtype):
    """q, k, v, dout"""
    make = lambda *shape: rng.standard_normal(shape).astype(dtype)
    b = sizes["batch"]
    return (make(b, sizes["seq_q"], sizes["heads_q"], sizes["dim"]), make(b, sizes["seq_k"], sizes["heads_kv"],
            sizes["dim"]),
            make(b, sizes["seq_k"], sizes["heads_kv"], sizes["dim_v"]),
            make(b, sizes["seq_q"], sizes["heads_q"], sizes["dim_v"]))


def furthest(a, b):
    """The largest difference, relative to the largest expected where that is above 1; equal infinities do not
    differ."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape, (a.shape, b.shape)
    if a.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        off = np.where(a == b, 0, np.abs(a - b))
    assert not np.isnan(off).any()
    finite = np.abs(b[np.isfinite(b)])
    return float(off.max() / max(1.0, finite.max(initial=0.0)))


def count_calls(name):
    """A list that grows with each call of the library's function of that name, from here on."""
    from ringattn import _library

    calls, real = [], getattr(_library.core(), name)
    setattr(_library.core(), name, lambda *arguments: calls.append(1) or real(*arguments))
    return calls
