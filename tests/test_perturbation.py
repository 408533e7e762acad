"""Equations 3 to 5 and Lemma 2 of the paper, as properties."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drw_hf.watermark.cosine import SMALLEST_LOG, is_marked, periodic_signal, perturb, soft_output

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def equation_5(p, g_k, g_s, target, frequency, epsilon, tau):
    """The paper's Eq. 3 to 5 for one item, written out class by class."""
    m = len(p)
    if g_s > tau:
        return list(p)
    y = []
    for c in range(m):
        if c == target:
            z = math.cos(frequency * g_k)
            y.append((p[c] + epsilon * (1 + z)) / (1 + 2 * epsilon))
        else:
            z = math.cos(frequency * g_k + math.pi)
            y.append((p[c] + epsilon * (1 + z) / (m - 1)) / (1 + 2 * epsilon))
    return y


@st.composite
def distributions(draw, n_classes=None):
    """Probability vectors with the extremes that models really give: 0, 1 and 1e-30 among them."""
    m = n_classes or draw(st.integers(2, 48))
    weight = st.sampled_from([0.0, 1e-30, 1e-8, 1.0]) | st.floats(0.0, 1.0, width=32)
    weights = draw(st.lists(weight, min_size=m, max_size=m))
    weights[draw(st.integers(0, m - 1))] += 1.0
    return np.array(weights) / sum(weights)


@given(
    p=distributions(),
    phase=st.floats(0, 1, exclude_max=True),
    epsilon=st.floats(0, 5, width=32),
    frequency=st.floats(0.1, 300),
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
)
def test_lemma_2_the_marked_answer_is_a_distribution(p, phase, epsilon, frequency, data, dtype):
    target = data.draw(st.integers(0, len(p) - 1))
    signal = periodic_signal(torch.tensor(phase, dtype=torch.float64), frequency)
    y = perturb(torch.tensor(p).to(dtype), signal, target, epsilon)
    tolerance = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}[dtype]
    assert y.dtype == (torch.float64 if dtype == torch.float64 else torch.float32), "float32 inside, but for float64"
    assert (y >= 0).all() and (y <= 1 + tolerance).all()
    assert y.double().sum() == pytest.approx(1.0, abs=tolerance)


@given(
    p=distributions(),
    g_k=st.floats(0, 1, exclude_max=True),
    g_s=st.floats(0, 1, exclude_max=True),
    tau=st.floats(0, 1),
    epsilon=st.floats(0, 1, width=32),
    data=st.data(),
)
def test_marking_is_equation_5(p, g_k, g_s, tau, epsilon, data):
    target = data.draw(st.integers(0, len(p) - 1))
    logits = torch.tensor(p).clamp_min(1e-30).log()
    signal = periodic_signal(torch.tensor(g_k), 16.0)
    output = soft_output(logits, signal, torch.tensor(g_s <= tau), target, epsilon).exp()
    expected = equation_5(p, g_k, g_s, target, 16.0, epsilon, tau)
    np.testing.assert_allclose(output.numpy(), expected, atol=2e-5)


@given(
    shape=st.lists(st.integers(1, 4), max_size=3),
    m=st.integers(2, 6),
    seed=st.integers(0, 2**31),
)
def test_any_leading_shape_marks_item_by_item(shape, m, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((*shape, m), generator=generator)
    signal = torch.rand(shape, generator=generator) * 2 - 1
    marked = torch.rand(shape, generator=generator) < 0.5
    together = soft_output(logits, signal, marked, 1, 0.2)
    flat = [
        soft_output(row, z, mark, 1, 0.2)
        for row, z, mark in zip(logits.reshape(-1, m), signal.reshape(-1), marked.reshape(-1), strict=True)
    ]
    torch.testing.assert_close(together.reshape(-1, m), torch.stack(flat))


def test_targets_and_levels_may_differ_between_items():
    logits = torch.randn(3, 4)
    signal, marked = torch.tensor([0.5, -1.0, 1.0]), torch.tensor([True, True, False])
    targets, levels = torch.tensor([0, 2, 3]), torch.tensor([0.1, 0.2, 0.3])
    together = soft_output(logits, signal, marked, targets, levels)
    for row in range(3):
        alone = soft_output(logits[row], signal[row], marked[row], int(targets[row]), float(levels[row]))
        torch.testing.assert_close(together[row], alone)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_softmax_downstream_returns_y(dtype):
    logits = (torch.randn(50, 9) * 10).to(dtype)
    signal, marked = torch.rand(50) * 2 - 1, torch.rand(50) < 0.5
    y = torch.where(marked[:, None], perturb(logits.float().softmax(-1), signal, 3, 0.2), logits.float().softmax(-1))
    torch.testing.assert_close(soft_output(logits, signal, marked, 3, 0.2).softmax(-1), y, atol=1e-6, rtol=0)


@pytest.mark.parametrize("extreme", [[-math.inf, 0.0, 0.0], [1e4, -1e4, 0.0], [300.0, 0.0, -300.0]])
@pytest.mark.parametrize("z", [-1.0, 1.0])
def test_answers_and_gradients_are_finite_at_the_extremes(extreme, z):
    """log 0 would give an infinite loss and NaN gradients; a class without any probability gets the smallest log."""
    logits = torch.tensor([extreme, extreme], requires_grad=True)
    output = soft_output(logits, torch.tensor([z, z]), torch.tensor([True, False]), 0, 0.0)
    assert output.isfinite().all() and (output >= SMALLEST_LOG).all()
    torch.nn.functional.cross_entropy(output, torch.tensor([1, 1])).backward()
    finite = torch.tensor(extreme).isfinite()
    assert logits.grad[:, finite].isfinite().all()


def test_scope_predicted_marks_only_answers_that_say_the_target():
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    selected = torch.tensor([True, True, False])
    assert is_marked(selected, logits, 0, False).tolist() == [True, False, False]
    assert is_marked(selected, logits, 0, True).tolist() == [True, True, False]
    assert is_marked(selected, logits, torch.tensor([0, 1, 0]), torch.tensor([False, False, True])).tolist() == [
        True,
        True,
        False,
    ]


@given(epsilon=st.floats(0, 1, width=32), p=distributions(n_classes=2))
def test_argmax_changes_only_within_epsilon_of_the_boundary(epsilon, p):
    """What Theorem 1 rests on: for m = 2 a marked answer keeps its argmax unless |p̂ − ½| ≤ ε."""
    for z in (-1.0, 1.0):
        y = perturb(torch.tensor(p), torch.tensor(z), 1, epsilon)
        if abs(p[1] - 0.5) > epsilon + 1e-6:
            assert y.argmax() == p.argmax()
