"""Pictures show what is computed."""
import numpy as np
import pytest
import reference

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
matplotlib.use("Agg")
import ringattn  # noqa: E402
from ringattn import Dilated, Problem, plot  # noqa: E402


@pytest.mark.parametrize("seed", range(20))
def test_visible_is_the_definition(seed):
    rng = np.random.default_rng(seed)
    sizes, pattern = reference.random_problem(rng)
    pattern.pop("scale", None)
    head = int(rng.integers(sizes["heads_q"]))
    seen = reference.visible(sizes["seq_q"], sizes["seq_k"], sizes["heads_q"], **pattern).any(0)[head]
    assert (plot.visible(Problem(**sizes, **pattern), head) == seen).all()


def test_one_document_has_all_keys():
    problem = Problem(seq_q=5, seq_k=9, heads_q=1, dim=8, causal=True, cu_seqlens=(0, 5))
    assert (plot.visible(problem) == np.tril(np.ones((5, 9), bool), 4)).all()


@pytest.mark.parametrize("heads", ["all", "groups"])
@pytest.mark.parametrize("offset", ["head", "block", "group"])
def test_dilated_choices_are_the_library_s(heads, offset):
    """A query that sees nothing has an lse of -inf, and with zero queries e^lse is how many keys are seen."""
    pattern = Dilated(((6, 2), (12, 3)), heads, offset)
    zeros, values = np.zeros((1, 24, 5, 4)), np.zeros((1, 24, 5, 4))
    _, lse = ringattn.attention(zeros, zeros, values, dilated=pattern, ranks=2, return_lse=True)
    for head in range(5):
        problem = Problem(seq_q=24, heads_q=5, dim=4, dilated=pattern)
        seen = plot.visible(problem, head).any(1)
        assert (seen == np.isfinite(lse[0, head])).all(), head


def test_pictures():
    problem = Problem(seq_q=40, heads_q=2, dim=8, causal=True)
    drawn = plot.mask(problem, 2, layout="contiguous").images[0].get_array()
    assert drawn[0, 0] == 0 and drawn[39, 0] == 1
    assert np.ma.getmaskarray(drawn)[0, 39] or np.isnan(drawn[0, 39])
    bars = plot.schedule(problem, 3).patches
    pairs = sum(ringattn.predict(problem, 3, rank).pairs for rank in range(3))
    assert sum(bar.get_width() for bar in bars) == pairs
    lines = plot.scaling(problem, (1, 2, 4), backward=True).lines
    assert len(lines) == 3 and lines[1].get_ydata()[0] == 0
    with pytest.raises(ringattn.ArgumentError, match="too large"):
        plot.visible(Problem(seq_q=5000, heads_q=1, dim=8))
