"""ringattn.attention and its gradient against the definition, over random problems; arrays of other kinds and
strides."""
import os

import numpy as np
import pytest
import reference
import ringattn

TOLERANCE = {"float64": 1e-10, "float32": 5e-6}
SWEEP = int(os.environ.get("RINGATTN_SWEEP", "30"))


def check(rng, sizes, pattern, dtype, ranks, **how):
    q, k, v, dout = reference.arrays(rng, sizes, dtype)
    expected = reference.attention(q, k, v, dout, **pattern)
    o, lse = ringattn.attention(q, k, v, ranks=ranks, return_lse=True, **pattern, **how)
    got = (o, lse, *ringattn.attention_backward(q, k, v, o, lse, dout, ranks=ranks, **pattern, **how))
    for name, a, b in zip(("o", "lse", "dq", "dk", "dv"), got, expected):
        assert a.dtype == dtype, name
        assert reference.furthest(a, b) < TOLERANCE[dtype], (name, sizes, pattern, ranks, how)


@pytest.mark.parametrize("seed", range(SWEEP))
def test_random_problems(seed):
    rng = np.random.default_rng(seed)
    sizes, pattern = reference.random_problem(rng)
    how = {"layout": str(rng.choice(["auto", "contiguous", "zigzag", "striped", "documents"])),
           "strategy": str(rng.choice(["auto", "ring", "pairwise", "allgather", "passq"])), "threads": 1}
    check(rng, sizes, pattern, str(rng.choice(["float64", "float32"])), int(rng.integers(1, 5)), **how)


def test_fewer_rows_than_ranks():
    rng = np.random.default_rng(1)
    sizes = dict(batch=2, seq_q=2, seq_k=3, heads_q=2, heads_kv=1, dim=8, dim_v=5)
    for layout in ("contiguous", "zigzag", "striped", "documents"):
        check(rng, sizes, {"causal": True}, "float64", 4, layout=layout)


@pytest.mark.parametrize("layout", ["contiguous", "zigzag", "striped", "documents", "auto"])
def test_one_document_by_default(layout):
    """Without cu_seqlens, and with those of one document, all keys are its keys, however many."""
    rng = np.random.default_rng(11)
    sizes = dict(batch=1, seq_q=5, seq_k=17, heads_q=2, heads_kv=1, dim=8, dim_v=8)
    check(rng, sizes, {"causal": True}, "float64", 3, layout=layout)
    q, k, v, dout = reference.arrays(rng, sizes, "float64")
    expected = reference.attention(q, k, v, dout, causal=True)
    o, lse = ringattn.attention(q, k, v, causal=True, cu_seqlens=[0, 5], ranks=3, layout=layout, return_lse=True)
    got = ringattn.attention_backward(q, k, v, o, lse, dout, causal=True, cu_seqlens=[0, 5], ranks=3, layout=layout)
    for a, b in zip((o, lse, *got), expected):
        assert reference.furthest(a, b) < 1e-12
    check(rng, {**sizes, "batch": 2}, {"causal": True}, "float64", 3, layout=layout)


def plain(rng, dtype="float64", batch=1, seq=23, heads=3, dim=8):
    return [rng.standard_normal((batch, seq, heads, dim)).astype(dtype) for _ in range(4)]


def test_strides_of_all_kinds():
    """[B, H, S, D] seen as [B, S, H, D], reversed, every other, broadcast: as their copies."""
    rng = np.random.default_rng(2)
    base = rng.standard_normal((1, 4, 46, 16))
    views = [base.transpose(0, 2, 1, 3)[:, ::2], base.transpose(0, 2, 1, 3)[:, ::-1][:, :23],
             np.broadcast_to(base[:, :, :1].transpose(0, 2, 1, 3), (1, 23, 4, 16))]
    for layout in ("contiguous", "zigzag", "striped"):
        got = ringattn.attention(*views, causal=True, ranks=3, layout=layout)
        copies = ringattn.attention(*(x.copy() for x in views), causal=True, ranks=3, layout=layout)
        assert (got == copies).all()


def test_broadcast_gradient():
    """The gradient of a sum has strides of zero."""
    q, k, v, _ = plain(np.random.default_rng(3))
    o, lse = ringattn.attention(q, k, v, return_lse=True)
    ones = np.broadcast_to(np.ones(()), o.shape)
    got = ringattn.attention_backward(q, k, v, o, lse, ones)
    for a, b in zip(got, reference.attention(q, k, v, np.ones(o.shape))[2:]):
        assert reference.furthest(a, b) < 1e-12


def test_packed_without_batch():
    """[T, H, D] in, [T, H, D] and [H, T] out."""
    q, k, v, dout = plain(np.random.default_rng(4))
    o, lse = ringattn.attention(q[0], k[0], v[0], cu_seqlens=[0, 5, 5, 23], causal=True, return_lse=True)
    expected = reference.attention(q, k, v, dout, cu_seqlens=[0, 5, 5, 23], causal=True)
    assert o.shape == (23, 3, 8) and lse.shape == (3, 23)
    got = ringattn.attention_backward(q[0], k[0], v[0], o, lse, dout[0],
                                      cu_seqlens=np.array([0, 5, 5, 23]), causal=True)
    for a, b in zip((o, lse, *got), expected):
        assert reference.furthest(a, b[0]) < 1e-12


def test_float16():
    q, k, v, _ = plain(np.random.default_rng(5), "float16")
    o = ringattn.attention(q, k, v, causal=True)
    assert o.dtype == np.float16
    assert reference.furthest(o, reference.attention(q, k, v, causal=True)[0]) < 2e-3


def test_unaligned_and_list():
    """An array whose strides are no whole elements is copied; lists are taken."""
    rng = np.random.default_rng(6)
    q, k, v, _ = plain(rng)
    items = np.zeros(q.shape, dtype=[("pad", "u1"), ("x", "f8")])
    items["x"] = q
    assert (ringattn.attention(items["x"], k, v) == ringattn.attention(q, k, v)).all()
    assert (ringattn.attention(q.tolist(), k, v) == ringattn.attention(q, k, v)).all()


def test_dlpack():
    """Whatever has __dlpack__ alone is read in place."""

    class Other:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **how):
            return self.x.__dlpack__(**how)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    q, k, v, _ = plain(np.random.default_rng(7))
    q = q[:, ::-1]
    got = ringattn.attention(Other(q), Other(k), Other(v), ranks=2)
    assert isinstance(got, np.ndarray) and (got == ringattn.attention(q, k, v, ranks=2)).all()


def test_cuda_array_interface():
    """What an array on a GPU says of itself; nothing is read here."""
    from types import SimpleNamespace

    from ringattn import _arrays

    about = dict(data=(4096, False), typestr="<f2", shape=(2, 3, 4), version=3)
    named = lambda **change: SimpleNamespace(__cuda_array_interface__={**about, **change},
                                             device=SimpleNamespace(id=1))
    seen = _arrays.view(named(strides=None), "x")
    assert seen[:5] == (4096, "f16", (2, 3, 4), (12, 4, 1), ("cuda", 1)) and seen.contiguous()
    seen = _arrays.view(named(strides=(0, -16, 4)), "x")
    assert seen.strides == (0, -8, 2) and seen.repeats()
    for change, words in ((dict(typestr="<i4"), "<i4"), (dict(strides=(24, 7, 2)), "whole elements"),
                          (dict(mask=object()), "mask")):
        with pytest.raises(ringattn.ArgumentError, match=words):
            _arrays.view(named(**change), "x")


@pytest.mark.parametrize("change, words", [
    (dict(layout="diagonal"), "one of auto, contiguous"),
    (dict(strategy="none"), "one of auto, ring"),
    (dict(window=(1, 2, 3)), "(left, right)"),
    (dict(cu_seqlens=[0, 9, 5, 23]), "cu_seqlens"),
    (dict(dilated=[(0, 1)]), "segment"),
    (dict(dilated="a:b"), "2048:1"),
    (dict(ranks=0), "ranks"),
    (dict(cu_seqlens_k=[0, 23]), "without cu_seqlens"),
])
def test_refusals(change, words):
    q, k, v, _ = plain(np.random.default_rng(8))
    with pytest.raises(ringattn.ArgumentError) as refused:
        ringattn.attention(q, k, v, **change)
    assert words in str(refused.value)
    assert isinstance(refused.value, ValueError) and refused.value.status == 1


def test_refused_arrays():
    q, k, v, dout = plain(np.random.default_rng(9))
    o, lse = ringattn.attention(q, k, v, return_lse=True)
    for arguments, words in [((q.astype("f4"), k, v), "but q f32"), ((q.astype("i4"), k, v), "int32"),
                             ((q, k[:, :, :, :4], v), "belong together"), ((q[0, 0], k, v), "must be [batch"),
                             ((q.astype(">f8"), k, v), "byte order"), ((np.ma.array(q), k, v), "mask of its own")]:
        with pytest.raises(ringattn.ArgumentError, match=words.replace("[", r"\[")):
            ringattn.attention(*arguments)
    with pytest.raises(ringattn.ArgumentError, match="lse has shape"):
        ringattn.attention_backward(q, k, v, o, lse[:, :, :-1], dout)
    with pytest.raises(ringattn.ArgumentError, match="dout has shape"):
        ringattn.attention_backward(q, k, v, o, lse, dout[:, :-1])
