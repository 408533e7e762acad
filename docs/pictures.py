"""The pictures of the documentation: ``python docs/pictures.py`` writes them into ``docs/images``.

They come out the same every time. Each has its own light ground, so that it can be read on light and dark pages, and
tells things apart by shape, not by colour alone.
"""

from pathlib import Path
from xml.sax.saxutils import escape

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from transformers import BertConfig

from drw_hf import WatermarkKey
from drw_hf.detection.statistics.amplitudes import SuspectAnswers, compute_amplitudes
from drw_hf.detection.statistics.margin import MarginLaw
from drw_hf.detection.statistics.null_law import NullLaw, simulate_null
from drw_hf.keys.derivation import MARGIN_DRAWS
from drw_hf.watermark.cosine import is_marked, periodic_signal, perturb
from drw_hf.watermark.margin import between, keyed_numbers, swap_chance
from drw_hf.watermark.tilt import phases, settings_of, signals
from drw_hf.wording import small_p

IMAGES = Path(__file__).parent / "images"
INK, MARK, LIGHT, GROUND = "#262626", "#b5232a", "#9a9a9a", "#fcfcfb"

matplotlib.rcParams.update(
    {
        "svg.hashsalt": "drw_hf",
        "figure.facecolor": GROUND,
        "axes.facecolor": GROUND,
        "axes.edgecolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 10,
        "legend.frameon": False,
    }
)


def make_key(**settings) -> WatermarkKey:
    """The same key in every run; it protects nothing."""
    names = ["other", "name"]
    config = BertConfig(vocab_size=3000, id2label=dict(enumerate(names)), architectures=["BertForTokenClassification"])
    return WatermarkKey.generate(config, target="name", special_token_ids=[0], secret=bytes(range(32)), **settings)


def mark(key: WatermarkKey, tokens: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """What a protected model serves in place of ``clean``, the probability of the target class."""
    phase, selection = key.entries(tokens)
    both = torch.from_numpy(np.stack([1 - clean, clean], axis=1))
    marked = is_marked(torch.from_numpy(selection <= key.tau), both, key.target, False)
    served = perturb(both, periodic_signal(torch.from_numpy(phase), key.frequency), key.target, key.epsilon)
    return torch.where(marked[:, None], served, both)[:, key.target].numpy()


def draw_cosine() -> None:
    """What a protected tagger serves, over the phase hash."""
    key, rng = make_key(), np.random.default_rng(3)
    tokens = rng.choice(np.arange(1, 3000), 420, replace=False)
    clean = 1 / (1 + np.exp(-rng.normal(3.0, 0.5, len(tokens))))
    served = mark(key, tokens, clean)
    phase, selection = key.entries(tokens)
    selected = selection <= key.tau

    figure = Figure(figsize=(7.6, 3.7), layout="constrained")
    axes = figure.subplots()
    axes.plot(phase[~selected], served[~selected], "o", mfc="none", mec=LIGHT, ms=4, label="unselected: as it was")
    axes.plot(phase[selected], served[selected], "o", color=INK, ms=3.5, label="selected: moved by the cosine")
    grid = np.linspace(0, 1, 400)
    middle = (clean.mean() + key.epsilon * (1 + np.cos(key.frequency * grid))) / (1 + 2 * key.epsilon)
    axes.plot(grid, middle, "--", color=MARK, lw=2, label=r"the cosine, $f_w$ = 16, $\varepsilon$ = 0.2")
    axes.set(xlim=(0, 1), ylim=(0.55, 1.02), xlabel="phase hash $g_k$ of the token")
    axes.set_ylabel("served probability of the target class")
    figure.legend(loc="outside upper center", ncols=3, fontsize=9, handletextpad=0.4, columnspacing=1.4)
    save(figure, "cosine.svg")


def draw_tilt() -> None:
    """How far a tagger's log-odds move with the words, and which answers change."""
    names = ["other", "name"]
    config = BertConfig(vocab_size=3000, id2label=dict(enumerate(names)), architectures=["BertForTokenClassification"])
    chosen = {"mark": "tilt", "strength": 0.3, "temperature": 1.0, "special_token_ids": [0]}
    key, rng = WatermarkKey.generate(config, secret=bytes(range(32)), **chosen), np.random.default_rng(3)
    tokens = rng.choice(np.arange(1, 3000), 600, replace=False)
    clean = rng.normal(0.0, 2.5, len(tokens))  # log-odds of "name"
    strength = settings_of(key).strength
    moves = strength * signals(key, tokens)
    changed = np.sign(clean) != np.sign(clean + moves[:, 1] - moves[:, 0])

    figure = Figure(figsize=(7.6, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    grid = np.linspace(0, 1, 400)
    left.plot(phases(key, tokens)[:, 1], moves[:, 1], "o", color=INK, ms=2.5, label="a word")
    left.plot(grid, strength * np.sqrt(2) * np.cos(key.frequency * grid), "--", color=MARK, lw=1.5, label="the cosine")
    left.set(xlim=(0, 1), ylim=(-0.5, 0.65), xlabel=r"$g$(word, class), known to the key alone")
    left.set_ylabel("shift of the class's log-odds")
    left.legend(loc="upper center", ncols=2, fontsize=9)
    served = clean + moves[:, 1] - moves[:, 0]
    right.axhline(0, color=LIGHT, lw=0.8)
    right.axvline(0, color=LIGHT, lw=0.8)
    right.plot(clean[~changed], served[~changed], "o", color=LIGHT, ms=2.5, label="the label stays")
    label = f"the label changes: {changed.sum()} of {len(tokens)}"
    right.plot(clean[changed], served[changed], "D", color=MARK, ms=5, label=label)
    right.set(xlim=(-4, 4), ylim=(-4, 4), xlabel="clean log-odds", ylabel="served log-odds")
    right.legend(loc="upper left", fontsize=9)
    save(figure, "tilt.svg")


def draw_margin() -> None:
    """How often a close call is answered with its second class, and what the log says of a suspect."""
    names = ["other", "name"]
    config = BertConfig(vocab_size=3000, id2label=dict(enumerate(names)), architectures=["BertForTokenClassification"])
    key = WatermarkKey.generate(
        config, secret=bytes(range(32)), mark="tilt", temperature=1.0, margin=0.2, special_token_ids=[0]
    )
    rng, delta = np.random.default_rng(7), settings_of(key).margin
    gaps = rng.uniform(0.0, 0.3, 4000)
    chances = swap_chance(torch.from_numpy(gaps), delta).numpy()
    messages = [bytes(row) for row in rng.integers(0, 256, (len(gaps), 8), dtype=np.uint8)]
    better, other = np.zeros(len(gaps), int), np.ones(len(gaps), int)
    *_, chance_of_better = between(better, other, chances)
    swapped = keyed_numbers(key.subkey(MARGIN_DRAWS), messages) >= chance_of_better

    figure = Figure(figsize=(7.6, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.1])
    grid, edges = np.linspace(0, 0.3, 300), np.linspace(0.0, 0.3, 16)
    share = np.histogram(gaps, edges, weights=1.0 * swapped)[0] / np.histogram(gaps, edges)[0]
    left.plot(grid, 0.5 * np.maximum(0.0, 1.0 - grid / delta), "--", color=MARK, lw=1.8, label="π, with δ = 0.2")
    left.plot((edges[:-1] + edges[1:]) / 2, share, "o", color=INK, ms=4, label="drawn by a key")
    left.set(xlim=(0, 0.3), ylim=(0, 0.6), xlabel="how far apart the two best classes are, d")
    left.set_ylabel("answered with the second")
    left.legend(loc="upper right", fontsize=9)

    close = np.flatnonzero(chances > 0.0)[:600]
    lean = rng.normal(0.0, 1.0, len(close)) + 0.8 * (swapped[close] - chances[close])  # of a student
    law = MarginLaw(lean, chances[close])
    test = law.test(law.statistic(swapped[close]))
    right.hist(law.simulate(20_000, seed=0) / test.sd, bins=60, density=True, color=LIGHT, label="other draws")
    right.axvline(test.statistic / test.sd, color=MARK, ls="--", lw=2, label="the draws in the log")
    right.set(xlabel="lean of a student after draws, in sd", ylabel="density", ylim=(0, 0.55))
    right.legend(loc="upper center", fontsize=9)
    save(figure, "margin.svg")


def draw_null() -> None:
    """The statistic under random keys, and under the one that left a faint mark."""
    key, rng = make_key(epsilon=0.02), np.random.default_rng(5)
    tokens = rng.choice(np.arange(1, 3000), 400, replace=False)
    victim = 1 / (1 + np.exp(-rng.normal(2.0, 0.5, len(tokens))))
    served = mark(key, tokens, victim)
    suspect = 1 / (1 + np.exp(-np.log(served / (1 - served)) - rng.normal(0.0, 0.4, len(tokens))))
    both = [np.stack([1 - q, q], axis=1) for q in (suspect, victim)]
    found = compute_amplitudes(tokens, key.target, SuspectAnswers("probabilities", both[0]), victim=both[1])
    law = NullLaw(found.A, key.settings)
    test = law.test(law.statistic(*key.entries(found.token_ids)))
    samples = (simulate_null(found.A, key.settings, 100_000, seed=0) - test.mean) / test.sd
    observed = (test.statistic - test.mean) / test.sd

    figure = Figure(figsize=(7.6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.hist(samples, bins=90, density=True, color=LIGHT)
    axes.axvline(observed, color=MARK, ls="--", lw=2)
    axes.text(-1.1, 0.30, "100,000 random keys", ha="right")
    axes.text(observed + 0.2, 0.30, "this key", color=MARK)
    axes.text(
        observed + 0.2,
        0.12,
        f"p = {small_p(test.log10_p)}, the share of random\nkeys beyond the line; it is\n"
        f"certainly at most {small_p(test.log10_bound, up=True)}",
    )
    axes.set(xlabel="test statistic, in standard deviations", ylabel="density", xlim=(-5, observed + 4.2))
    save(figure, "null.svg")


def save(figure: Figure, name: str) -> None:
    """Text as outlines, so that no font is missing; no date, so that a file changes only with its picture."""
    figure.savefig(IMAGES / name, metadata={"Date": None, "Creator": None})
    print(IMAGES / name)


# -- the diagram


STEPS = [
    ("Protect", "owner", ["a secret key adds", "a small signal to", "what is served"]),
    ("Extract", "thief", ["asks many questions,", "trains a student", "on the answers"]),
    ("Detect", "owner", ["probes the student,", "sorts its answers by", "the key: p-value"]),
    ("Prove", "anybody", ["replays the finding;", "the key was fixed", "beforehand"]),
]
PASSED_ON = [["marked", "answers"], ["a student"], ["evidence"]]
WIDTH, HEIGHT, GAP, TOP, SIDE = 184, 138, 82, 46, 12
DASHES = ' stroke-dasharray="3 5"'


def draw_flow() -> None:
    """Protect, extract, detect, prove, as plain SVG."""
    whole = len(STEPS) * WIDTH + (len(STEPS) - 1) * GAP + 2 * SIDE
    tall = TOP + HEIGHT + 106
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {tall}" width="{whole}" height="{tall}" '
        'role="img" font-family="Helvetica, Arial, sans-serif">',
        "<title>Protect, extract, detect, prove</title>",
        f'<rect width="{whole}" height="{tall}" rx="10" fill="{GROUND}"/>',
        "<defs>",
        *(
            f'<marker id="tip{colour[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
            for colour in (INK, MARK)
        ),
        "</defs>",
    ]
    for number, (title, who, lines) in enumerate(STEPS):
        left = SIDE + number * (WIDTH + GAP)
        middle = left + WIDTH / 2
        dash = ' stroke-dasharray="7 5"' if who == "thief" else ""
        parts.append(
            f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff" stroke="{INK}" '
            f'stroke-width="2"{dash}/>'
        )
        parts.append(text(middle, TOP - 14, who, size=15, colour="#5a5a5a"))
        parts.append(text(middle, TOP + 36, title, size=21, weight="bold"))
        parts += [text(middle, TOP + 70 + 23 * row, line, size=17) for row, line in enumerate(lines)]
        if number < len(PASSED_ON):
            start, end, y = left + WIDTH + 6, left + WIDTH + GAP - 6, TOP + HEIGHT / 2
            parts.append(arrow(f"M{start} {y}H{end}"))
            rows = PASSED_ON[number]
            parts += [
                text((start + end) / 2, y - 14 - 18 * (len(rows) - 1 - row), word, size=14)
                for row, word in enumerate(rows)
            ]
    # The key and its commitment go past the thief, from where they were made to where they are used.
    first, third, fourth = (SIDE + number * (WIDTH + GAP) + WIDTH / 2 for number in (0, 2, 3))
    bottom = TOP + HEIGHT
    parts.append(arrow(f"M{first + 24} {bottom + 4}V{bottom + 34}H{third}V{bottom + 8}", MARK))
    parts.append(text((first + third) / 2 + 12, bottom + 54, "the key, secret", size=15, colour=MARK))
    parts.append(arrow(f"M{first - 24} {bottom + 4}V{bottom + 72}H{fourth}V{bottom + 8}", INK, DASHES))
    parts.append(text((first + third) / 2 + 12, bottom + 92, "its commitment, published before", size=15))
    parts.append("</svg>")
    (IMAGES / "flow.svg").write_text("\n".join(parts) + "\n", encoding="utf-8")
    print(IMAGES / "flow.svg")


def text(x: float, y: float, words: str, *, size: int, weight: str = "normal", colour: str = INK) -> str:
    """A centred line of text."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" fill="{colour}" text-anchor="middle">'
        f"{escape(words)}</text>"
    )


def arrow(path: str, colour: str = INK, more: str = "") -> str:
    """A line with a tip."""
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{more} marker-end="url(#tip{colour[1:]})"/>'
    )


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_flow()
    draw_cosine()
    draw_tilt()
    draw_margin()
    draw_null()
