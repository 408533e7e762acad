"""What tilt costs: the temperature, the cost of a strength over throwaway keys, and the strength for a budget."""

import functools
import math

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset

from drw_hf.errors import DatasetError, DrwError, InvalidInputError, KeyMismatchError
from drw_hf.experiments.tradeoff import KAPPA, effect_spread, expected_effects
from drw_hf.keys import KeyRing
from drw_hf.planning import (
    ExpectedStudent,
    TiltCosts,
    TiltTraffic,
    accuracy_bounds,
    fit_temperature,
    measure_accuracy,
    observe_tilt_traffic,
    plan_tilt,
    predict_accuracy,
    tilt_accuracy_bounds,
)
from drw_hf.planning.fit import fit_to
from drw_hf.planning.students import EXPECTED_TILT_STUDENTS
from drw_hf.planning.tilt_costs import STRONGEST, shifts_of
from drw_hf.planning.tilt_plan import pair_weights, pairs_that_count, predicted_z, z_of
from drw_hf.runs.lines import read_lines
from drw_hf.watermark.tilt import tilt
from small_models import SPECIAL, WORDS, make_key, make_lively, make_model, make_tokenizer, make_victim

TASKS = ["sequence-classification", "token-classification"]
TEMPERATURE = 1.6


def tilt_key(model, number=0, **settings):
    settings = {"target": None, "mark": "tilt", "temperature": TEMPERATURE, **settings}
    return make_key(model, make_tokenizer(), secret=bytes([number]) * 32, **settings)


def some_rows(task, n_texts=200, seed=0):
    generator = np.random.default_rng(seed)
    words = [generator.choice([*WORDS, "unheard"], size=generator.integers(1, 12)).tolist() for _ in range(n_texts)]
    if task == "token-classification":
        return {"tokens": words}
    return {"text": [" ".join(row) for row in words]}


@functools.cache
def observed(task):
    """A model, a data set whose labels are drawn from the model calibrated at TEMPERATURE, and the traffic."""
    rows = some_rows(task)
    model = make_model(task)
    if task == "sequence-classification":
        make_lively(model, make_tokenizer(), rows["text"])
    traffic = observe_tilt_traffic(
        model, Dataset.from_dict(rows), make_tokenizer(), like=tilt_key(model), progress=False
    )
    noise = np.random.default_rng(7).gumbel(size=traffic.logits.shape)
    gold = (traffic.logits / TEMPERATURE + noise).argmax(axis=1)
    by_row = [gold[traffic.texts == row].tolist() for row in range(traffic.n_texts)]
    if task == "token-classification":
        data = Dataset.from_dict({**rows, "labels": by_row})
    else:
        data = Dataset.from_dict({**rows, "label": [model.config.id2label[row[0]] for row in by_row]})
    return model, data, observe_tilt_traffic(model, data, make_tokenizer(), like=tilt_key(model), progress=False)


def made_up(n_items=4000, seed=0, spread=2.0):
    """Traffic of a model that is calibrated at temperature 1, and a key whose vocabulary holds its tokens."""
    generator = np.random.default_rng(seed)
    logits = spread * generator.normal(size=(n_items, 5))
    counts = generator.integers(0, 7, n_items)
    tokens = len(SPECIAL) + (generator.integers(0, 300, n_items)[:, None] + np.arange(6) * 47) % 300
    tokens = tokens[np.arange(6) < counts[:, None]]
    gold = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    offsets = np.cumsum([0, *counts])
    return TiltTraffic(logits, tokens, offsets, np.arange(n_items) // 4, gold)


@functools.cache
def model_of_five_classes():
    labels = [f"class {number}" for number in range(5)]
    return make_model(
        vocab_size=305,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )


def made_up_keys(number, first=0, **settings):
    like = tilt_key(model_of_five_classes(), **settings)
    return [like.replace(secret=bytes([first + place]) * 32) for place in range(number)]


# -- the temperature


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_by_which_a_models_logits_are_too_large_is_found(temperature):
    traffic = made_up(10000)
    found = fit_temperature(traffic.logits * temperature, traffic.gold)
    assert found == pytest.approx(temperature, rel=0.05)
    assert found == float(f"{found:.4g}"), "it is what is recorded, so it is short"
    log_p = torch.log_softmax(torch.from_numpy(traffic.logits * temperature), dim=-1).numpy()
    assert fit_temperature(log_p, traffic.gold) == pytest.approx(found, rel=1e-3), "log-probabilities serve as logits"


def test_the_temperature_found_makes_the_labels_most_likely():
    traffic = made_up(2000)
    scaled = 2.0 * traffic.logits
    found = fit_temperature(scaled, traffic.gold)

    def likelihood(temperature):
        log_p = torch.log_softmax(torch.from_numpy(scaled / temperature), dim=-1).numpy()
        return log_p[np.arange(len(log_p)), traffic.gold].mean()

    assert likelihood(found) > max(likelihood(found * 1.005), likelihood(found / 1.005))


def test_items_without_a_label_do_not_count():
    traffic = made_up(3000)
    labels = np.where(np.arange(3000) < 2000, traffic.gold, -1)
    few = fit_temperature(traffic.logits[:2000], traffic.gold[:2000])
    assert fit_temperature(traffic.logits, labels) == few


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda logits, gold: (logits, np.full_like(gold, -1)), "there are no labels"),
        (lambda logits, gold: (logits, np.zeros_like(gold)), "all 500 labels are of one class"),
        (lambda logits, gold: (logits, logits.argmax(axis=1)), "right about all of these items"),
        (lambda logits, gold: (-logits, gold), "hardly better than chance"),
        (lambda logits, gold: (logits, gold + 1), "expected classes from 0 to 4"),
        (lambda logits, gold: (logits[:-1], gold), "labels has shape"),
        (lambda logits, gold: (np.where(logits > 3.0, np.nan, logits), gold), "NaN"),
    ],
)
def test_where_there_is_no_such_temperature_it_is_said_why(change, words):
    traffic = made_up(500)
    with pytest.raises(InvalidInputError, match=words):
        fit_temperature(*change(traffic.logits, traffic.gold))


# -- the cost of a strength


def test_no_strength_no_cost_and_never_less_for_more():
    costs = TiltCosts(made_up(), 1.0, made_up_keys(5))
    found = [costs.at(strength) for strength in np.linspace(0.0, 1.0, 21)]
    assert found[0].expected_cost == found[0].measured_cost == found[0].standard_error == 0.0
    steps = np.diff([cost.expected_cost for cost in found])
    assert (steps >= 0.0).all() and found[-1].expected_cost > 1.0


def test_the_cost_is_that_of_the_argmax_after_the_mark():
    traffic, keys, temperature, strength = made_up(), made_up_keys(3), 1.7, 0.4
    p = torch.softmax(torch.from_numpy(traffic.logits / temperature), dim=-1).numpy()
    rows, costs, hits = np.arange(len(p)), [], []
    for key in keys:
        shift = torch.from_numpy(shifts_of(traffic, key))
        served = tilt(torch.from_numpy(traffic.logits), shift, strength, temperature).argmax(dim=-1).numpy()
        costs.append(100.0 * (p.max(axis=1) - p[rows, served]).mean())
        hits.append(100.0 * ((p.argmax(axis=1) == traffic.gold).mean() - (served == traffic.gold).mean()))
    found = TiltCosts(traffic, temperature, keys).at(strength)
    assert found.expected_cost == pytest.approx(np.mean(costs), rel=1e-4)
    assert found.spread == pytest.approx(np.std(costs, ddof=1), rel=1e-3)
    assert found.standard_error == pytest.approx(found.spread / math.sqrt(3))
    assert found.measured_cost == pytest.approx(np.mean(hits), abs=1e-9)


def test_a_calibrated_model_loses_what_is_expected():
    """Labels are drawn from the model's own probabilities, which makes it calibrated; then the two must agree."""
    found = TiltCosts(made_up(40000), 1.0, made_up_keys(20)).at(0.5)
    assert found.expected_cost > 0.3 and found.measured_error < 0.15
    assert abs(found.measured_cost - found.expected_cost) < 3.0 * found.measured_error


def test_the_error_of_the_measured_cost_is_that_of_other_texts_and_keys():
    costs = [
        TiltCosts(made_up(1500, seed=seed), 1.0, made_up_keys(5, first=5 * seed)).at(0.5) for seed in range(1, 41)
    ]
    spread = np.std([cost.measured_cost for cost in costs], ddof=1)
    stated = math.sqrt(np.mean([cost.measured_error**2 for cost in costs]))
    assert stated == pytest.approx(spread, rel=0.35)


def test_the_error_over_texts_is_that_of_other_texts():
    keys = made_up_keys(5)
    costs = [TiltCosts(made_up(1500, seed=seed), 1.0, keys).at(0.5) for seed in range(1, 31)]
    spread = np.std([cost.expected_cost for cost in costs], ddof=1)
    assert np.mean([cost.text_error for cost in costs]) == pytest.approx(spread, rel=0.4)


def test_words_of_a_text_stand_and_fall_together():
    """A sample in which every text occurs as four items knows no more than one without the repetitions."""
    once, keys = made_up(500), made_up_keys(5)
    once = TiltTraffic(once.logits, once.token_ids, once.offsets, np.arange(500), once.gold)
    counts = np.tile(np.diff(once.offsets), 4)
    four = TiltTraffic(
        np.tile(once.logits, (4, 1)),
        np.tile(once.token_ids, 4),
        np.cumsum([0, *counts]),
        np.tile(once.texts, 4),
        np.tile(once.gold, 4),
    )
    single, repeated = (TiltCosts(traffic, 1.0, keys).at(0.5) for traffic in (once, four))
    assert repeated.expected_cost == pytest.approx(single.expected_cost)
    assert repeated.measured_error == pytest.approx(single.measured_error)
    assert repeated.text_error == pytest.approx(single.text_error)


def test_items_without_a_word_cost_nothing_and_count():
    traffic, keys = made_up(), made_up_keys(2)
    empty = np.diff(traffic.offsets) == 0
    assert empty.any() and not shifts_of(traffic, keys[0])[empty].any()
    silent = TiltTraffic(traffic.logits, [], np.zeros(4001, int), traffic.texts, traffic.gold)
    cost = TiltCosts(silent, 1.0, keys).at(1.0)
    assert cost.expected_cost == cost.measured_cost == 0.0


def test_fewer_marked_tokens_cost_less():
    few, all_of_them = (TiltCosts(made_up(), 1.0, made_up_keys(5, tau=tau)).at(0.5) for tau in (0.2, 1.0))
    assert few.expected_cost < 0.6 * all_of_them.expected_cost


def test_a_large_sample_is_worked_on_in_parts(monkeypatch):
    whole = TiltCosts(made_up(), 1.0, made_up_keys(2)).at(0.3)
    monkeypatch.setattr("drw_hf.planning.tilt_costs._AT_ONCE", 999)
    assert TiltCosts(made_up(), 1.0, made_up_keys(2)).at(0.3) == whole


# -- the strength for a budget


@pytest.mark.parametrize("budget", [0.05, 0.3, 1.0])
def test_the_strength_spends_the_budget_and_no_more(budget):
    traffic = made_up(10000)
    costs = TiltCosts(traffic, 1.0, made_up_keys(20))
    strength = costs.strength_for(budget)
    assert len(f"{strength:g}".replace(".", "").lstrip("0")) <= 3
    assert costs.at(strength).upper_cost <= budget < costs.at(1.02 * strength).upper_cost
    fresh = TiltCosts(traffic, 1.0, made_up_keys(20, first=100)).at(strength)
    error = math.hypot(fresh.standard_error, costs.at(strength).standard_error)
    assert abs(fresh.expected_cost - costs.at(strength).expected_cost) < 4.0 * error, "other keys cost as much"


def test_the_budget_leaves_room_for_what_a_small_sample_does_not_tell():
    few, many = (TiltCosts(made_up(n), 1.0, made_up_keys(20)) for n in (500, 10000))
    cost = few.at(few.strength_for(0.3))
    assert cost.upper_cost == pytest.approx(
        cost.expected_cost + 2.0 * math.hypot(cost.standard_error, cost.text_error)
    )
    assert cost.expected_cost < many.at(many.strength_for(0.3)).expected_cost < 0.3


def test_a_model_that_is_very_sure_does_not_use_the_budget_up():
    costs = TiltCosts(made_up(spread=60.0), 1.0, made_up_keys(3))
    assert costs.strength_for(50.0) == STRONGEST and costs.at(STRONGEST).expected_cost < 50.0


def test_a_budget_that_allows_nothing_is_said_to():
    undecided = made_up(2000, spread=0.001)
    assert TiltCosts(undecided, 1.0, made_up_keys(3)).strength_for(1e-6) == 0.0
    with pytest.raises(InvalidInputError, match=r"no strength fits into a budget of 1e-06 points: on these 2000"):
        fit_to(undecided, made_up_keys(1)[0], budget=1e-6, temperature=1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda costs: costs.at(1.5), r"strength=1.5: expected a finite number in \[0, 1\]"),
        (lambda costs: costs.strength_for(0.0), r"budget=0.0: expected a finite number in \(0, 100\]"),
        (lambda costs: TiltCosts(costs.traffic, 0.0, made_up_keys(2)), "temperature=0.0"),
        (lambda costs: TiltCosts(costs.traffic, 1.0, made_up_keys(1)), "1 keys have no standard error"),
    ],
)
def test_wrong_numbers_are_refused(call, words):
    costs = TiltCosts(made_up(50), 1.0, made_up_keys(2))
    with pytest.raises(InvalidInputError, match=words):
        call(costs)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logits": np.zeros((0, 3)), "offsets": [0], "texts": [], "gold": [], "token_ids": []}, "one or more rows"),
        ({"offsets": [0, 1, 1]}, "offsets must rise from 0 to the number of token_ids, 2"),
        ({"offsets": [0, 3, 2]}, "offsets must rise"),
        ({"gold": [0]}, "gold has shape"),
        ({"logits": [[0.0, math.inf], [0.0, 1.0]]}, "NaN or infinite"),
    ],
)
def test_traffic_must_fit_together(change, words):
    whole = {"logits": [[0.0, 1.0], [1.0, 0.0]], "token_ids": [5, 6], "offsets": [0, 1, 2], "texts": [0, 1]}
    with pytest.raises(InvalidInputError, match=words):
        TiltTraffic(**{**whole, "gold": [0, 1], **change})


# -- with a model


@pytest.mark.parametrize("task", TASKS)
def test_what_is_counted_is_what_a_protected_model_loses(task):
    model, data, traffic = observed(task)
    for number, label_kind in enumerate(("soft", "hard")):
        key = tilt_key(model, number, strength=0.4)
        found = TiltCosts(traffic, TEMPERATURE, [key, key]).at(0.4)
        victim = make_victim(task, model=model, key=key, label_kind=label_kind)
        counted = measure_accuracy(victim, data, make_tokenizer(), progress=False)["accuracy"]
        assert counted["n"] == traffic.n_items
        lost = 100.0 * (counted["clean"] - counted["protected"])
        assert found.measured_cost == pytest.approx(lost, abs=1e-6), "rounded scores keep their argmax"


def test_a_pair_of_texts_is_one_set_of_words():
    model, tokenizer = make_model(), make_tokenizer()
    key = tilt_key(model)
    pairs = Dataset.from_dict({"sentence1": ["the film was good", "a"], "sentence2": ["the book was bad", "a film"]})
    traffic = observe_tilt_traffic(model, pairs, tokenizer, like=key, progress=False)
    words = [set(tokenizer.convert_ids_to_tokens(traffic.token_ids[a:b])) for a, b in ((0, 6), (6, 8))]
    assert traffic.offsets.tolist() == [0, 6, 8]
    assert words == [{"the", "film", "was", "good", "book", "bad"}, {"a", "film"}]


def test_text_is_cut_where_the_key_cuts_it():
    model, tokenizer = make_model(), make_tokenizer()
    rows = Dataset.from_dict({"text": ["good " + "film " * 10 + "bad"]})
    cut = observe_tilt_traffic(model, rows, tokenizer, like=tilt_key(model, max_length=6), progress=False)
    whole = observe_tilt_traffic(model, rows, tokenizer, like=tilt_key(model), progress=False)
    assert (len(cut.token_ids), len(whole.token_ids)) == (2, 3)
    rows = Dataset.from_dict({"text": ["good film film film"]})
    seen = observe_tilt_traffic(model, rows, tokenizer, like=tilt_key(model), progress=False)
    assert np.abs(cut.logits - seen.logits).max() < 1e-7 < np.abs(whole.logits - seen.logits).max()


def test_words_that_are_special_to_the_key_are_answers_without_a_token():
    model = make_model("token-classification")
    rows = Dataset.from_dict({"tokens": [["the", "unheard", "film"]]})
    traffic = observe_tilt_traffic(model, rows, make_tokenizer(), like=tilt_key(model), progress=False)
    assert traffic.n_items == 3 and np.diff(traffic.offsets).tolist() == [1, 0, 1]


def test_labels_are_matched_by_name_and_may_be_missing():
    model = make_model()
    rows = Dataset.from_dict({"text": ["a good film", "a bad film", "a film"], "label": [0, 1, -1]})
    rows = rows.cast_column("label", ClassLabel(names=["positive", "negative"]))
    traffic = observe_tilt_traffic(model, rows, make_tokenizer(), like=tilt_key(model), progress=False)
    assert traffic.gold.tolist() == [1, 0, -1] and traffic.labelled
    with pytest.raises(DatasetError, match="label_column='mood'"):
        observe_tilt_traffic(model, rows, make_tokenizer(), like=tilt_key(model), label_column="mood")
    with pytest.raises(InvalidInputError, match="the data is a list"):
        observe_tilt_traffic(model, ["a film"], make_tokenizer(), like=tilt_key(model), label_column="label")


# -- what Theorem 1 is for the paper's mark


@pytest.mark.parametrize("task", TASKS)
def test_no_key_loses_more_than_the_bound_and_on_average_they_lose_what_is_expected(task):
    _, _, traffic = observed(task)
    model = make_model(task)
    settings = tilt_key(model, strength=0.3).settings
    keys = [tilt_key(model, number) for number in range(20)]
    found = tilt_accuracy_bounds(traffic, settings, keys)
    assert found.bound < found.expected < found.clean and found.n == traffic.n_items and found.paper_bound is None
    for number in range(20, 40):
        key = tilt_key(model, number)
        cost = TiltCosts(traffic, TEMPERATURE, [key, key]).at(0.3).expected_cost
        assert cost <= 100.0 * found.largest_cost
    none = tilt_accuracy_bounds(traffic, settings.replace(strength=0.0), keys)
    assert none.clean == none.expected == pytest.approx(none.bound)


def test_predict_accuracy_knows_both_marks():
    model, data, traffic = observed(TASKS[0])
    tokenizer, key = make_tokenizer(), tilt_key(model, strength=0.5)
    texts = data.remove_columns("label")
    asking = {"progress": False}
    found = predict_accuracy(model, texts, tokenizer, key=key, **asking)
    assert found["soft"] == found["hard"] and found["soft"].expected < found["soft"].clean
    expected = TiltCosts(traffic, TEMPERATURE, [tilt_key(model, number) for number in range(20)]).at(0.5)
    assert 100.0 * found["soft"].expected_cost == pytest.approx(
        expected.expected_cost, abs=8.0 * expected.standard_error
    )
    for other in (key.settings, KeyRing(key)):
        again = predict_accuracy(model, texts, tokenizer, key=other, **asking)["soft"]
        assert (again.clean, again.bound) == (found["soft"].clean, found["soft"].bound)
    victim = make_victim(model=model, key=key)
    assert predict_accuracy(victim, texts, tokenizer, **asking)["hard"].bound == found["hard"].bound
    with pytest.raises(InvalidInputError, match="sample_all"):
        predict_accuracy(model, texts, tokenizer, key=key, sample_all=True)
    tagger = make_model(TASKS[1])
    with pytest.raises(KeyMismatchError, match="another label set"):
        predict_accuracy(model, texts, tokenizer, key=tilt_key(tagger))
    with pytest.raises(InvalidInputError, match="tilt_accuracy_bounds"):
        accuracy_bounds([[0.5, 0.5]], key.settings)


# -- the plan


def test_a_plan_shows_what_strengths_cost_and_what_is_to_be_expected_of_students():
    model, data, traffic = observed(TASKS[1])
    like = tilt_key(model)
    plan = plan_tilt(model, data, make_tokenizer(), strengths=[0.05, 0.2, 1.5], like=like, progress=False)
    assert [row.strength for row in plan.rows] == [0.05, 0.2, 1.5]
    costs = [row.cost.expected_cost for row in plan.rows]
    assert costs == sorted(costs) and costs[0] > 0.0 and plan.rows[0].cost.measured_cost is not None
    assert plan.fit.expected_cost <= 0.3 and plan.recommended.cost == plan.fit.cost and plan.fit.reliable
    assert plan.fit.temperature == pytest.approx(TEMPERATURE, rel=0.1) and plan.queries == traffic.n_texts
    for row in (*plan.rows, plan.recommended):
        z = predicted_z(row.strength, pair_weights(traffic, plan.fit.temperature), EXPECTED_TILT_STUDENTS["unseen"])
        assert row.z_scores == {kind: typical for kind, (_, typical, _) in z.items()}
        assert row.z_ranges == {kind: (least, largest) for kind, (least, _, largest) in z.items()}
        assert row.z_ranges["soft"][0] < row.z_scores["soft"] < row.z_ranges["soft"][1]
    silent = plan_tilt(model, data, make_tokenizer(), strengths=[0.2], like=like, student=None, progress=False)
    assert not silent.rows[0].z_scores, "nothing is predicted"
    with pytest.raises(DrwError, match="strengths must hold"):
        plan_tilt(model, data, make_tokenizer(), strengths=[])
    with pytest.raises(InvalidInputError, match="student='mine'"):
        plan_tilt(model, data, make_tokenizer(), student="mine")


@pytest.mark.parametrize("where", ["queries", "unseen"])
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_what_is_expected_of_students_is_what_was_measured(request, where, label_kind):
    lines = read_lines(request.config.rootpath / "docs" / "results" / "tradeoff.jsonl")
    found = expected_effects(lines, where, label_kind)
    student = EXPECTED_TILT_STUDENTS[where]
    assert (student.sigma, student.kappa) == (1.0, KAPPA)
    measured = {round(one.strength, 2): round(one.effect, 3) for one in found.values()}
    assert student.phi[label_kind] == measured
    spread = effect_spread(lines, where, label_kind, student)
    assert student.spread[label_kind] == tuple(float(f"{end:.3g}") for end in spread)


def test_who_knows_students_is_told_what_would_be_found():
    student = ExpectedStudent(phi={"soft": 0.4, "hard": {0.1: 0.1, 0.4: 0.2}}, sigma=0.5)
    model, data, traffic = observed(TASKS[1])
    asked = {"strengths": [0.1, 0.4], "like": tilt_key(model), "student": student, "progress": False}
    plan = plan_tilt(model, data, make_tokenizer(), **asked)
    weak, strong = plan.rows
    assert strong.z_scores["soft"] > weak.z_scores["soft"] > weak.z_scores["hard"] > 0.0
    z = predicted_z(0.4, pair_weights(traffic, plan.fit.temperature), student)
    assert strong.z_scores == {kind: typical for kind, (_, typical, _) in z.items()}
    assert all(least == typical == largest for least, typical, largest in z.values()), "one student does not vary"
    assert strong.log10_p("soft") == pytest.approx(-(strong.z_scores["soft"] ** 2) / 2 / math.log(10))
    few = plan_tilt(model, data, make_tokenizer(), queries=10, **asked)
    assert few.queries == 10 and few.n_effective < plan.n_effective


def test_pairs_of_equal_weight_count_fully():
    """Every token once, every class as likely: as many pairs as there are."""
    even = TiltTraffic(np.zeros((50, 4)), np.arange(50), np.arange(51), np.arange(50), np.zeros(50, int))
    assert pairs_that_count(pair_weights(even, 1.0), kappa=1.0) == pytest.approx(200.0)
    sure = TiltTraffic([[50.0, 0.0]] * 50, np.arange(50), np.arange(51), np.arange(50), np.zeros(50, int))
    assert pairs_that_count(pair_weights(sure, 1.0), kappa=1.0) == pytest.approx(50.0), "the impossible is silent"
    silent = TiltTraffic([[0.0, 1.0]], [], [0, 0], [0], [0])
    assert pairs_that_count(pair_weights(silent, 1.0), kappa=1.0) == 0.0


def test_a_pair_that_tells_little_adds_little_and_one_that_tells_much_is_limited_by_kappa():
    """z² = Σ ln(1 + γ²W/(1 + κW))."""
    weights = np.array([0.01, 1.0, 1e6])
    terms = [math.log1p(0.25 * w / (1.0 + 2.0 * w)) for w in weights]
    assert z_of(0.5, weights, kappa=2.0) == pytest.approx(math.sqrt(sum(terms)))
    assert terms[0] < 0.0025 and terms[2] == pytest.approx(math.log1p(0.125), rel=1e-5)
    assert z_of(0.0, weights, kappa=2.0) == 0.0
