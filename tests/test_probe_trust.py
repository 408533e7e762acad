"""Probes that need not be believed: tokens computed again, a neutral party, texts that nobody chose, the log's age.

The suspects are functions that answer as the equations of the mark say, or as an innocent model does.
"""

import dataclasses
import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig

from drw_hf import WatermarkKey, detect
from drw_hf.detection import Announcement, Probe, probe_suspect
from drw_hf.detection.drawing import drawn_numbers, read_seed
from drw_hf.errors import InvalidInputError, KeyMismatchError
from drw_hf.evidence import ProvenLines, verify_evidence
from drw_hf.keys.binding import tokenizer_digest, tokenizer_fingerprint
from drw_hf.watermark.marking import OutputOptions, protect
from drw_hf.watermark.tokens import Query
from small_models import TAGS, make_tokenizer

VECTORS = Path(__file__).parent / "vectors"
N_WORDS = 600
TOKENS, DRAWN, PARTYS, LOGS = "tokens are those", "drawn by the public seed", "neutral party", "log is older"


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer([f"word{number}" for number in range(N_WORDS)])


@pytest.fixture(scope="module")
def config():
    labels = dict(enumerate(TAGS))
    return BertConfig(vocab_size=N_WORDS + 5, id2label=labels, architectures=["BertForTokenClassification"])


@pytest.fixture(scope="module")
def key(config, tokenizer):
    return WatermarkKey.generate(config, target=1, tokenizer=tokenizer, secret=bytes(range(32)), tau=0.8)


@pytest.fixture(scope="module")
def texts():
    generator = np.random.default_rng(0)
    return [[f"word{number}" for number in row] for row in generator.integers(0, N_WORDS, (120, 12))]


class Somebody:
    """A tagger that is a function of the words: its clean answers, or those with the mark."""

    def __init__(self, tokenizer, key=None, seed=0, noise=0.0):
        self.tokenizer, self.key, self.seed, self.noise = tokenizer, key, seed, noise

    def __call__(self, rows):
        return [self.tags(words) for words in rows]

    def tags(self, words):
        ids = torch.tensor([self.tokenizer.convert_tokens_to_ids(list(words))])
        logits = torch.stack([self.logits_of(int(token)) for token in ids[0]])[None]
        logits[..., 1] += 3.0
        found = logits.log_softmax(-1)
        if self.key is not None:
            found = protect(logits, Query(ids, torch.ones_like(ids)), self.key, OutputOptions())
        wobble = torch.Generator().manual_seed(1 + self.seed + int(ids.sum()))
        found = found + self.noise * torch.randn(found.shape, generator=wobble)
        return [dict(zip(TAGS, row, strict=True)) for row in found[0].softmax(-1).tolist()]

    def logits_of(self, token):
        return torch.randn(len(TAGS), generator=torch.Generator().manual_seed(token))


@pytest.fixture(scope="module")
def people(tokenizer, key):
    return {
        "victim": Somebody(tokenizer),
        "marked": Somebody(tokenizer, key, seed=1, noise=0.3),
        "innocent": Somebody(tokenizer, seed=2, noise=0.3),
    }


@pytest.fixture(scope="module")
def asked(people, texts, key, tokenizer, tmp_path_factory):
    """The probes of a marked suspect and of an innocent one."""
    cache = tmp_path_factory.mktemp("answers")
    options = {"key": key, "tokenizer": tokenizer, "victim": people["victim"], "progress": False}
    return {
        name: probe_suspect(people[name], texts, cache_dir=cache / name, **options) for name in ("marked", "innocent")
    }


def status_of(found, words):
    (check,) = [check for check in found.checks if words in check.name]
    return check.status


def believed(found, words):
    return any(words in sentence for sentence in found.not_checked)


# -- the tokens


def permuted(probe, chance):
    """The probe of an innocent with its token ids exchanged, whoever they are: a permutation of the vocabulary."""
    ids = np.arange(N_WORDS + 5)
    ids[5:] = 5 + chance.permutation(N_WORDS)
    return dataclasses.replace(probe, input_ids=ids[probe.input_ids])


def best_permutation(probe, key):
    """The one that convicts: words whose answers stray least from the clean ones get tokens that are not marked."""
    ids = probe.input_ids[probe.offsets[probe.rows] + probe.places]
    y = -np.log(np.clip(np.delete(probe.suspect, key.target, 1), 1e-8, None)).mean(1)
    y += np.log(np.clip(np.delete(probe.victim, key.target, 1), 1e-8, None)).mean(1)
    used = np.unique(ids)
    strays = np.array([y[ids == token].mean() for token in used])
    pull = -1.0 * (key.selection_table[used] <= key.tau) * (1 - np.cos(key.frequency * key.phase_table[used]))
    table = np.arange(N_WORDS + 5)
    table[used[np.argsort(strays)]] = used[np.argsort(pull)]
    return dataclasses.replace(probe, input_ids=table[probe.input_ids])


def test_an_innocent_is_not_convicted_by_exchanging_the_tokens_of_its_probe(
    asked, key, tokenizer, tmp_path, record_property
):
    honest = detect(asked["innocent"], key=key)
    assert honest.verdict != "detected"
    forged = detect(best_permutation(asked["innocent"], key), key=key)
    assert forged.verdict == "detected" and forged.log10_bound < -20, "so strong is the attack"
    forged.save(tmp_path / "forged.json")
    unaware = verify_evidence(tmp_path / "forged.json", key=key)
    assert not unaware.failed and believed(unaware, "give the tokenizer to have them computed again")
    aware = verify_evidence(tmp_path / "forged.json", key=key, tokenizer=tokenizer)
    assert [check.name for check in aware.failed] == ["the tokens are those of the texts"]
    for number in range(20):
        probe = permuted(asked["innocent"], np.random.default_rng(number))
        found = verify_evidence(detect(probe, key=key), key=key, tokenizer=tokenizer)
        assert status_of(found, TOKENS) == "failed"
    record_property("tried", 21)


def test_the_tokens_of_an_honest_probe_are_computed_again(asked, key, tokenizer):
    found = verify_evidence(detect(asked["marked"], key=key), key=key, tokenizer=tokenizer)
    assert status_of(found, TOKENS) == "passed" and not believed(found, "tokens in the probe")
    assert not found.failed


def test_items_of_a_probe_cannot_be_moved_or_doubled(asked, key, tokenizer):
    probe = asked["innocent"]
    moved = dataclasses.replace(probe, places=np.where(probe.places > 1, probe.places - 1, probe.places))
    assert status_of(verify_evidence(detect(moved, key=key), key=key, tokenizer=tokenizer), TOKENS) == "failed"


def test_a_probe_without_texts_says_that_its_tokens_are_believed(asked, key, tokenizer):
    bare = detect(dataclasses.replace(asked["marked"], texts=None), key=key)
    found = verify_evidence(bare, key=key, tokenizer=tokenizer)
    assert believed(found, "the probe does not keep these") and not any(TOKENS in check.name for check in found.checks)


def test_a_tokenizer_that_splits_texts_in_another_way_is_told_apart_though_its_vocabulary_is_the_same(
    asked, key, tokenizer, config, caplog
):
    """Whoever may choose the tokenizer after the key chooses which words are marked."""
    from tokenizers import normalizers

    other = make_tokenizer([f"word{number}" for number in range(N_WORDS)])
    other.backend_tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace("word1", "word2")]
    )
    assert tokenizer_fingerprint(other) == tokenizer_fingerprint(tokenizer)
    assert tokenizer_digest(other) != tokenizer_digest(tokenizer) == key.tokenizer_digest
    found = verify_evidence(detect(asked["marked"], key=key), key=key, tokenizer=other)
    assert status_of(found, TOKENS) == "failed"
    harmless = make_tokenizer([f"word{number}" for number in range(N_WORDS)])
    harmless.backend_tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace("elsewhere", "x")]
    )
    found = verify_evidence(detect(asked["marked"], key=key), key=key, tokenizer=harmless)
    assert status_of(found, TOKENS) == "open", "its tokens are the same here, but it is another one"
    made_with_it = dataclasses.replace(asked["marked"], tokenizer_digest=tokenizer_digest(harmless))
    result = detect(made_with_it, key=key)
    assert "is not the one that the key was made with" in caplog.text
    found = verify_evidence(result, key=key)
    assert status_of(found, TOKENS) == "open", "the probe says so by itself"
    old = key.replace(tokenizer_digest=None)
    found = verify_evidence(detect(asked["marked"], key=old), key=old, tokenizer=tokenizer)
    assert status_of(found, TOKENS) == "passed" and believed(found, "the key fixes its vocabulary alone")


def test_a_tokenizers_digest_does_not_depend_on_the_last_call_nor_on_where_it_was(tokenizer, tmp_path):
    from transformers import AutoTokenizer

    before = tokenizer_digest(tokenizer)
    tokenizer(["word1 word2"], padding=True, truncation=True, max_length=3)
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer_digest(tokenizer) == before == tokenizer_digest(AutoTokenizer.from_pretrained(tmp_path))


def test_keys_without_the_later_digest_stay_what_they_were(key):
    old = key.replace(tokenizer_digest=None)
    assert "tokenizer_digest" not in old.binding.to_fields() and old.commitment() != key.commitment()


# -- the files


def test_probes_keep_their_texts_and_old_ones_are_read(asked, tmp_path):
    probe = asked["marked"]
    probe.save(tmp_path / "new.npz")
    again = Probe.load(tmp_path / "new.npz")
    assert again.texts == probe.texts and again.digest() == probe.digest() and again.cut == probe.cut
    changes = dict.fromkeys(("texts", "cut", "tokenizer_digest"))
    old = dataclasses.replace(probe, **changes)
    old.save(tmp_path / "old.npz")
    assert Probe.load(tmp_path / "old.npz").digest() == old.digest() != probe.digest()
    with zipfile.ZipFile(tmp_path / "old.npz") as archive:
        assert b"drw-probe-1" in archive.read("fields.npy")
    with zipfile.ZipFile(tmp_path / "new.npz") as archive:
        assert b"drw-probe-2" in archive.read("fields.npy")


@pytest.mark.parametrize(
    "changes",
    [
        {"texts": ("one",)},
        {"texts": (1,) * 120},
        {"cut": {"max_length": 3}},
        {"cut": {"max_length": "3", "side": "left", "pairs": "longest_first"}},
        {"draw": {"seed": "00"}},
        {"n_unanswered": -1},
        {"control_names": ("somebody",)},
        {"left_out": (3,)},
    ],
    ids=str,
)
def test_a_probe_that_holds_something_else_is_refused(asked, key, changes, tmp_path):
    wrong = dataclasses.replace(asked["marked"], **changes)
    with pytest.raises(InvalidInputError):
        detect(wrong, key=key)
    (tmp_path / "probe.npz").write_bytes(wrong.content())
    with pytest.raises(InvalidInputError):
        Probe.load(tmp_path / "probe.npz")


# -- a neutral party


def test_a_neutral_party_probes_without_a_key_and_the_owner_completes_it(people, texts, key, tokenizer, config, asked):
    options = {"model": config, "tokenizer": tokenizer, "progress": False}
    theirs = probe_suspect(people["marked"], texts, **options)
    published = theirs.digest()
    assert theirs.asked_digest() == published and theirs.victim is None
    found = detect(theirs, key=key, tokenizer=tokenizer, victim=people["victim"], progress=False)
    assert found.log10_p == detect(asked["marked"], key=key).log10_p, "as if the owner had asked"
    assert found.probe.asked_digest() == published != found.probe.digest()
    checked = verify_evidence(found, key=key, tokenizer=tokenizer, probe_digest=published)
    assert status_of(checked, PARTYS) == status_of(checked, TOKENS) == "passed"
    assert believed(checked, "the word of the party who published")
    altered = dataclasses.replace(found.probe, suspect=found.probe.suspect[:, [1, 0, 2, 3]])
    for wrong in (detect(altered, key=key), detect(asked["innocent"], key=key)):
        assert status_of(verify_evidence(wrong, key=key, probe_digest=published), PARTYS) == "failed"


def test_what_the_owner_adds_must_fit_what_the_party_recorded(people, texts, key, tokenizer, config, asked):
    theirs = probe_suspect(people["marked"], texts[:20], model=config, tokenizer=tokenizer, progress=False)
    shifted = make_tokenizer([f"word{(number + 1) % N_WORDS}" for number in range(N_WORDS)])
    for error, options in (
        (InvalidInputError, {}),
        (KeyMismatchError, {"tokenizer": shifted}),
    ):
        with pytest.raises(error, match="tokenizer"):
            detect(theirs, key=key, victim=people["victim"], progress=False, **options)
    with pytest.raises(InvalidInputError, match=r"holds.*victim"):
        detect(asked["marked"], key=key, victim=people["victim"], tokenizer=tokenizer)
    bare = dataclasses.replace(theirs, texts=None)
    with pytest.raises(InvalidInputError, match="does not say its texts"):
        detect(bare, key=key, victim=people["victim"], tokenizer=tokenizer)
    with pytest.raises(InvalidInputError, match="neither key= nor model="):
        probe_suspect(people["marked"], texts[:20], tokenizer=tokenizer)
    gold = [["B-PER"] * 12] * 20
    completed = detect(theirs, key=key, gold=gold, tokenizer=tokenizer, controls=[people["innocent"]]).probe
    assert completed.gold.tolist() == [1] * len(theirs.rows) and len(completed.controls) == 1


# -- texts that nobody chose


def test_a_public_seed_draws_the_texts_and_the_draw_is_done_again(people, texts, key, tokenizer, config):
    announced = Announcement.of(texts, 40, "drand quicknet, round 30000000", key.task)
    seed = read_seed(b'{"round": 30000000, "randomness": "' + b"5a" * 32 + b'"}')
    drawn = announced.draw(texts, seed, key.task)
    options = {"model": config, "tokenizer": tokenizer, "progress": False, "draw": announced.record(seed)}
    theirs = probe_suspect(people["marked"], drawn, **options)
    result = detect(theirs, key=key)
    found = verify_evidence(result, key=key, corpus=texts)
    assert status_of(found, DRAWN) == "passed" and believed(found, "nobody knew it when the key")
    assert not believed(found, "not chosen by the suspect's answers")
    assert believed(verify_evidence(result, key=key), "give the corpus to draw them again")
    assert status_of(verify_evidence(result, key=key, corpus=texts[:-1]), DRAWN) == "failed"
    other = dataclasses.replace(theirs, draw={**theirs.draw, "seed": "5b" * 32})
    chosen = dataclasses.replace(probe_suspect(people["marked"], texts[:40], **options), draw=announced.record(seed))
    for forged in (other, chosen):
        assert status_of(verify_evidence(detect(forged, key=key), key=key, corpus=texts), DRAWN) == "failed"
    undrawn = dataclasses.replace(theirs, draw=None)
    assert status_of(verify_evidence(detect(undrawn, key=key), key=key, corpus=texts), DRAWN) == "open"


def test_draws_are_those_of_the_committed_vectors():
    for case in json.loads((VECTORS / "draws.json").read_text()):
        announced = Announcement.from_dict(case["announcement"])
        assert announced.digest() == case["digest"]
        assert drawn_numbers(announced, bytes.fromhex(case["seed"])) == case["numbers"]


def test_every_text_is_as_likely_to_be_drawn():
    announced = Announcement("00" * 32, 20, 5, "a beacon")
    counts = np.zeros(20)
    for number in range(4000):
        counts[drawn_numbers(announced, number.to_bytes(16, "big"))] += 1
    assert abs(counts - 1000).max() < 6 * np.sqrt(4000 * 0.25 * 0.75)


@pytest.mark.parametrize(
    "content", [b"", b"no digits", b"5a", b'{"round": 3}', b'{"randomness": 7}', b"[]", b"\xff" * 40]
)
def test_what_is_no_seed_is_refused(content):
    with pytest.raises(InvalidInputError, match="seed"):
        read_seed(content)


@pytest.mark.parametrize(
    "changes", [{"number": 0}, {"number": 21}, {"source": " "}, {"algorithm": "another"}, {"number": "3"}, {"x": 1}]
)
def test_what_is_no_announcement_is_refused(changes):
    announced = Announcement("00" * 32, 20, 5, "a beacon").to_dict()
    with pytest.raises(InvalidInputError):
        Announcement.from_dict({**announced, **changes})


# -- the day


def test_a_suspect_is_not_first_seen_after_the_evidence_was_made(asked, key, tmp_path):
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(InvalidInputError, match="lies in the future"):
        detect(asked["marked"], key=key, suspect_first_seen=tomorrow)
    result = detect(asked["marked"], key=key)
    for repo in (None, "owner/model"):
        found = verify_evidence(result, key=key, suspect_first_seen=tomorrow, repo_id=repo)
        (failed,) = found.failed
        assert "committed" in failed.name and "after the evidence was made" in failed.detail


# -- the log


@pytest.fixture(scope="module")
def logged(people, texts, key, tokenizer):
    served = [[TAGS[int(number)] for number in row] for row in np.random.default_rng(1).integers(0, 4, (120, 12))]
    options = {"key": key, "tokenizer": tokenizer, "victim": people["victim"], "progress": False}
    return detect(people["marked"], texts, logged=served, **options), served


def proven(texts, served, **changes):
    lines = {tuple(text): [tuple(map(TAGS.index, row))] for text, row in zip(texts, served, strict=True)}
    parts = {"served": lines, "newest": datetime(2026, 3, 1, tzinfo=UTC), "complete": True, **changes}
    return ProvenLines(**parts)


def test_a_log_is_its_owners_word_unless_its_lines_are_proven_older_than_the_suspect(logged, texts, key):
    result, served = logged
    assert status_of(verify_evidence(result, key=key), LOGS) == "open"
    altered = [["I-PER"] * 12, *served[1:]]
    more = proven([*texts, ["word1"]], [*served, ["O"]])
    cases = [
        ("passed", proven(texts, served), "2026-04-01"),
        ("open", proven(texts, served), "2026-02-01"),
        ("open", proven(texts, served), None),
        ("failed", proven(texts, altered), "2026-04-01"),
        ("failed", proven(texts[1:], served[1:]), "2026-04-01"),
        ("open", proven(texts, served, complete=False), "2026-04-01"),
        ("open", more, "2026-04-01"),
    ]
    for status, log, seen in cases:
        found = verify_evidence(result, key=key, log=log, suspect_first_seen=seen)
        assert status_of(found, LOGS) == status, str(found)


def test_evidence_without_a_log_is_not_asked_for_its_age(asked, key):
    found = verify_evidence(detect(asked["marked"], key=key), key=key)
    assert not any("log" in check.name for check in found.checks)
    counted = verify_evidence(detect(asked["marked"], key=key, logged_counts=np.ones(N_WORDS + 5, int)), key=key)
    assert status_of(counted, LOGS) == "open"


def test_what_cannot_be_known_is_named(logged, asked, key):
    plain = verify_evidence(detect(asked["marked"], key=key), key=key)
    assert believed(plain, "Nobody put the mark there") and believed(
        plain, "never trained on answers that were served"
    )
    assert not believed(plain, "chose what to ask by earlier answers")
    assert believed(verify_evidence(logged[0], key=key), "chose what to ask by earlier answers")
