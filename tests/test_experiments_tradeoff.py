"""What buys evidence: the planner's formula turned round, and the tables of what was measured."""

import json
import math

import numpy as np
import pytest

from drw_hf.experiments.marks_settings import SEEDS, load_settings
from drw_hf.experiments.marks_work import Workshop
from drw_hf.experiments.tradeoff import KAPPAS, effect_of, expected_effects, measurements, report
from drw_hf.planning.tilt_plan import z_of


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("effect", [0.01, 0.3, 5.0])
def test_the_effect_is_the_one_that_the_planner_would_need(effect, kappa):
    weights = np.random.default_rng(0).exponential(size=500)
    assert effect_of(z_of(effect, weights, kappa), weights, kappa) == pytest.approx(effect, rel=1e-3)
    assert effect_of(-0.5, weights, kappa) == 0.0, "no mark, no effect"


def line(setting, label_kind, budget, seed, effect, z, share=1.0):
    tests = {name: {"z": z} for name in ("scores", "labels", "scores, with a reference")}
    found = {**tests, "effect": {str(kappa): effect for kappa in KAPPAS}}
    about = {"setting": setting, "label_kind": label_kind, "budget": budget, "share": share, "seed": seed}
    unseen = {"accuracy": 80.0 + seed, "1 of the texts": found, "0.25 of the texts": found}
    return {
        **about,
        "strength": 0.5,
        "queries": {"accuracy": 90.0, f"{share:g} of the texts": found},
        "unseen": unseen,
    }


def test_what_is_expected_is_the_mean_over_settings_however_many_seeds_each_has():
    lines = [line("pos-tiny", "soft", 0.3, seed, effect=seed / 10, z=9.0) for seed in SEEDS]
    for kind, effect in (("soft", 0.05), ("hard", 9.0)):
        lines.append(line("sst2-tiny", kind, 0.3, 1, effect=effect, z=3.0))
    lines.append(line("sst2-tiny", "soft", 0.3, 1, effect=8.0, z=3.0, share=0.25))
    lines.append(line("sst2-tiny", "soft", 1.0, 1, effect=0.1, z=3.0))  # twice the effect of the usual budget
    found = expected_effects(lines, "queries", "soft")
    assert found[0.3].strength == pytest.approx(0.5) and list(found) == [0.3, 1.0]
    assert found[0.3].by_setting == pytest.approx({"pos-tiny": 0.4, "sst2-tiny": 0.1})
    assert found[0.3].effect == pytest.approx(math.sqrt(0.4 * 0.1))
    assert found[1.0].effect == pytest.approx(2.0 * math.sqrt(0.4 * 0.1)), "in the same settings"
    silent = expected_effects([line("pos-tiny", "soft", 0.3, 1, effect=0.0, z=-1.0)], "unseen", "soft")
    assert silent[0.3].effect == 0.0


def test_a_row_is_over_seeds_and_says_of_how_many_queries(tmp_path):
    output = tmp_path / "tradeoff.jsonl"
    lines = [line("pos-tiny", "soft", 0.3, seed, effect=0.2, z=5.0 + seed) for seed in SEEDS]
    lines.append(line("sst2-tiny", "hard", 0.3, 1, effect=0.2, z=4.0, share=0.25))
    output.write_text("".join(json.dumps(one) + "\n" for one in lines))
    text = report(output)
    assert "| POS, tiny | soft | 0.3 | 0.500 | all | 3 | 81.0–83.0 | 6.0–8.0 | 6.0–8.0 |" in text
    assert "| SST-2, tiny | hard | 0.3 | 0.500 | 25 % | 1 | 81.0 | 4.0 | 4.0 |" in text


def test_pretrained_models_are_trained_anew_for_one_budget_and_seed_alone(tmp_path):
    shop = Workshop(load_settings(encoder="any"), tmp_path, "data")
    about = [one.about for one in measurements(shop, ["sst2-tiny", "clinc150-pretrained"])]
    counted = {name: [a for a in about if a["setting"] == name] for name in ("sst2-tiny", "clinc150-pretrained")}
    assert len(counted["sst2-tiny"]) == 3 * 2 * 4
    trained = [a for a in counted["clinc150-pretrained"] if (a["budget"], a["share"]) != (0.3, 1.0)]
    assert len(counted["clinc150-pretrained"]) == 3 * 2 + 2 and {(a["budget"], a["seed"]) for a in trained} == {
        (1.0, 1)
    }
