"""A log is its owner's word, unless roots that were stamped before the suspect was seen fix all its lines."""

import dataclasses
import datetime
import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from drw_hf import KeyRing, QueryLog, WatermarkedModelForSequenceClassification, detect, identify
from drw_hf.asking import Served, expire_log, log_intervals, merge_logs, redact_log, root_log
from drw_hf.asking.log_lines import as_line, document_of
from drw_hf.cli.main import app
from drw_hf.detection import DetectionResult
from drw_hf.detection.result import authenticate
from drw_hf.errors import InvalidInputError, TimestampError
from drw_hf.evidence import verify_evidence
from drw_hf.evidence.log_roots import stamp_days
from drw_hf.evidence.logs import NAME
from drw_hf.keys import Terms, UnseasonedKey
from local_beacon import LocalBeacon
from local_tsa import LocalTSA
from needles import leaks_in
from small_models import TAGS, make_key, make_lively, make_model, make_tokenizer
from test_evidence import alterations
from test_query_log import Clock

DAYS = ["2024-03-01", "2024-03-02", "2024-03-03"]
SEEN = "2024-06-01"
SETTINGS = {"mark": "tilt", "strength": 0.2, "temperature": 1.0, "margin": 0.6}


def stamp(folder, tsa, at=None):
    """The root of each day that is over, stamped five minutes after midnight, or at another time."""
    for one in root_log(folder):
        after = datetime.date.fromisoformat(one.day) + datetime.timedelta(days=1)
        tsa.time = at or f"{after:%Y%m%d}000500"
        stamp_days(folder, [one], tsa.url)
    tsa.time = None


class Service:
    """A hard-label service of a ring that ran for three days, one chain of lines each, and a student of Ann's answers.

    A cut-out of it (``texts_of``, ``answered``) is what the owner writes into other logs.
    """

    def __init__(self, folder, tsa):
        self.tokenizer = make_tokenizer()
        vocabulary = [word for word in self.tokenizer.get_vocab() if word.isalpha()]
        rng = np.random.default_rng(0)
        texts = [" ".join(rng.choice(vocabulary, 6)) for _ in range(180)]
        self.model = make_lively(make_model(), self.tokenizer, texts, spread=1.0)
        self.ring = KeyRing(make_key(self.model, self.tokenizer, **SETTINGS), secret=bytes(32)).declare(["ann", "ben"])
        self.key = self.ring.key_for("ann")
        self.victim = WatermarkedModelForSequenceClassification.from_model(
            self.model, key=self.ring, label_kind="hard"
        )
        self.asked = {
            day: {"ann": texts[50 * place : 50 * place + 50], "ben": texts[150 + 10 * place : 160 + 10 * place]}
            for place, day in enumerate(DAYS)
        }
        self.folder = folder / "log"
        with pytest.MonkeyPatch.context() as monkeypatch:
            self.serve(self.folder, Clock(monkeypatch), DAYS)
            stamp(self.folder, tsa)
        self.asking = {"victim": self.model, "tokenizer": self.tokenizer, "progress": False}
        self.evidence = self.accuse(QueryLog(self.folder))

    def answers(self, user, texts):
        with self.victim.use_key(user=user), torch.no_grad():
            numbers = self.victim(**self.tokenizer(texts, padding=True, return_tensors="pt")).logits.argmax(-1)
        return [self.model.config.id2label[int(number)] for number in numbers]

    def serve(self, folder, clock, days, users=("ann", "ben")):
        for day in days:
            clock.on(day)
            with QueryLog(folder).writer(self.ring, label_kind="hard") as writer:
                for user in users:
                    texts = self.asked[day][user]
                    writer.append(
                        [Served(*pair, user) for pair in zip(texts, self.answers(user, texts), strict=True)]
                    ).result()
        clock.on("2024-03-09")

    def accuse(self, log, **options):
        texts = [text for day in DAYS for text in self.asked[day]["ann"]]
        learnt = dict(zip(texts, self.answers("ann", texts), strict=True))

        def suspect(asked):
            return [learnt.get(text, "positive") for text in asked]

        return detect(suspect, logged=log, key=self.key, suspect_first_seen=SEEN, **self.asking, **options)

    def forged(self, **changes):
        """The evidence with something else in it, authenticated by the owner, who has the key."""
        found = dataclasses.replace(self.evidence, **changes)
        return dataclasses.replace(found, mac=authenticate(found.document(), self.key))


@pytest.fixture(scope="module")
def service(tmp_path_factory, authority):
    return Service(tmp_path_factory.mktemp("served"), authority)


@pytest.fixture
def folder(service, tmp_path):
    return shutil.copytree(service.folder, tmp_path / "log")


@pytest.fixture
def clock(monkeypatch):
    found = Clock(monkeypatch)
    found.on("2024-03-09")
    return found


def judge(evidence, service, log, tsa, **options):
    """What verify says of the log, and all that it believes."""
    options = {"key": service.key, "trusted_roots": [tsa.root], **options}
    found = verify_evidence(evidence, log=log, **options)
    (check,) = [check for check in found.checks if check.name == NAME]
    assert not [one for one in found.failed if one.name not in (NAME, "the figures follow from the probe")], str(found)
    return check.status, check.detail, found.not_checked


def files(folder):
    return {json.loads(path.read_text().splitlines()[0])["day"]: path for path in folder.glob("*.jsonl")}


def stamps(folder):
    return sorted((folder / "days").glob("*.tsr"))


# -- what holds


def test_a_log_under_stamped_roots_that_are_older_than_the_suspect_passes_and_what_nobody_can_tell_is_named(
    service, folder, tsa
):
    for log in (folder, str(folder), QueryLog(folder), QueryLog(folder).select(user="ben")):
        status, detail, believed = judge(service.evidence, service, log, tsa)
        assert status == "passed" and "all 150 texts are under roots that were stamped by 2024-03-04 00:05" in detail
    said = " ".join(believed)
    for words in ("Which days of the log were tested", "No other lines were stamped", "was served to somebody"):
        assert words in said
    for words in ("none were left out afterwards", "The logged labels in the probe are those", "is in the order"):
        assert words not in said, "that is shown now"
    assert "a log that is filtered by answers" in said


def test_evidence_says_days_roots_and_counts_and_no_text_no_name_and_nothing_of_the_key(service, tmp_path):
    declared = service.evidence.log
    assert (declared["lines"], declared["texts"], declared["digests"]) == (150, 150, 0)
    assert [(one["day"], one["lines"]) for one in declared["days"]] == [(day, 61) for day in DAYS]
    assert declared["since"] is declared["until"] is None
    content = json.dumps(declared)
    said = set(re.findall(r'"([^"]*)"', content))
    names = set(json.loads(content)) | {"day", "root", "drw-query-log-interval", *DAYS}
    assert all(re.fullmatch("[0-9a-f]{64}", word) for word in said - names), "roots alone"
    assert service.key.commitment() not in said
    assert leaks_in(service.key, [("log", content.encode())]) == []
    service.evidence.save(tmp_path / "evidence.json")
    assert DetectionResult.load(tmp_path / "evidence.json").log == declared


def test_without_the_log_or_an_authority_that_is_trusted_it_stays_its_owners_word(service, folder, tsa, tmp_path):
    status, detail, believed = judge(service.evidence, service, None, tsa)
    assert status == "open" and "its owner's word" in detail and "declares 3 days" in detail
    assert any("The logged labels in the probe are those" in one for one in believed)
    status, detail, _ = judge(service.evidence, service, folder, tsa, trusted_roots=[])
    assert status == "open" and "no authority was named" in detail
    stranger = LocalTSA(tmp_path / "stranger")
    status, detail, _ = judge(service.evidence, service, folder, tsa, trusted_roots=[stranger.root])
    assert status == "open" and "does not lead to a trusted root" in detail
    with pytest.raises(TimestampError, match="cannot be read"):
        judge(service.evidence, service, folder, tsa, trusted_roots=[tmp_path / "nothing"])
    with pytest.raises(InvalidInputError, match="is no folder"):
        judge(service.evidence, service, tmp_path / "nowhere", tsa)


def test_other_users_texts_may_be_taken_out_of_the_copy_that_is_shown(service, folder, tsa):
    assert redact_log(folder, keep="ann", names=True) == 30
    assert judge(service.evidence, service, folder, tsa)[0] == "passed"
    shown = b"".join(path.read_bytes() for path in folder.glob("*.jsonl"))
    bens = [text for day in DAYS for text in service.asked[day]["ben"]]
    assert not any(text.encode() in shown for text in (*bens, "ben"))
    with pytest.raises(InvalidInputError, match="both given"):
        redact_log(folder, keep="ann", user="ben")


def test_a_search_through_a_log_declares_its_days_for_every_user(service, folder, tsa):
    found = identify(
        lambda asked: ["positive"] * len(asked), logged=QueryLog(folder), ring=service.ring, **service.asking
    )
    assert {user: result.log["lines"] for user, result in found.results.items()} == {"ann": 150, "ben": 30}
    result = found.results["ben"]
    status, detail, _ = judge(result, service, folder, tsa, key=service.ring.key_for("ben"), suspect_first_seen=SEEN)
    assert status == "passed" and "all 30 texts" in detail


# -- what does not


def rewrite(folder, day, change):
    path = files(folder)[day]
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def alter(folder, service, **_):
    said = '"answered":"positive"', '"answered":"negative"'
    path = files(folder)[DAYS[1]]
    content = path.read_text()
    path.write_text(content.replace(*(said if said[0] in content else said[::-1]), 1))


def drop_a_line(folder, **_):
    rewrite(folder, DAYS[1], lambda lines: lines[:20] + lines[21:])


def swap_lines(folder, **_):
    rewrite(folder, DAYS[1], lambda lines: [*lines[:20], lines[21], lines[20], *lines[22:]])


def cut_the_end_off(folder, **_):
    rewrite(folder, DAYS[2], lambda lines: lines[:-5])


def cut_the_end_off_and_root_it_again(folder, tsa, **_):
    cut_the_end_off(folder)
    for path in (folder / "days").glob(f"{DAYS[2]}*"):
        path.unlink()
    stamp(folder, tsa)


def add_lines(folder, service, clock, tsa, **_):
    clock.on(DAYS[1])
    with QueryLog(folder).writer(service.ring, label_kind="hard") as writer:
        writer.append([Served("a text that nobody ever asked", "positive", "ann")]).result()
    clock.on("2024-03-09")
    stamp(folder, tsa)


def add_a_line_at_the_end_of_a_chain(folder, service, **_):
    from drw_hf.asking.log_lines import LogKey

    def append(lines):
        last = json.loads(lines[-1])
        more = document_of(
            Served("made up", "positive", "ann"), LogKey.of(service.key), last["n"] + 1, last["at"], last["link"]
        )
        return [*lines, as_line(more)]

    rewrite(folder, DAYS[2], append)


def remove_a_day(folder, **_):
    files(folder)[DAYS[1]].unlink()
    for path in (folder / "days").glob(f"{DAYS[1]}*"):
        path.unlink()


def remove_the_last_day(folder, **_):
    files(folder)[DAYS[2]].unlink()
    for path in (folder / "days").glob(f"{DAYS[2]}*"):
        path.unlink()


def forge_a_root(folder, **_):
    path = next((folder / "days").glob(f"{DAYS[0]}*.json"))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "root": "ab" * 32}))


def damage_a_root(folder, **_):
    next((folder / "days").glob("*.json")).write_text("{}")


def forget_a_root(folder, **_):
    for path in (folder / "days").glob(f"{DAYS[1]}*"):
        path.unlink()


def forget_a_stamp(folder, **_):
    stamps(folder)[0].unlink()


def exchange_stamps(folder, **_):
    shutil.copy(stamps(folder)[0], stamps(folder)[2])


def damage_a_stamp(folder, **_):
    stamps(folder)[1].write_bytes(b"no stamp" * 100)


def oversize_a_stamp(folder, **_):
    stamps(folder)[1].write_bytes(bytes(2**21))


def stamp_late(folder, tsa, **_):
    stamps(folder)[2].unlink()
    stamp(folder, tsa, at="20240601000000")


def stamp_within_the_accuracy(folder, tsa, **_):
    stamps(folder)[2].unlink()
    stamp(folder, tsa, at="20240531235959")  # give or take 1.5 s


def stamp_early(folder, tsa, **_):
    stamps(folder)[0].unlink()
    stamp(folder, tsa, at="20240301220000")


def remove_days_that_are_old(folder, monkeypatch, **_):
    monkeypatch.undo()  # the clock of this machine: all days are years old
    expire_log(folder, 0)


def take_texts_out(folder, **_):
    redact_log(folder, user="ann")


def take_one_days_texts_out(folder, **_):
    redact_log(folder, before=DAYS[1])


def make_up_another(folder, service, tsa, clock, **_):
    """The owner, who has the key, writes a log of those days, when the suspect is known."""
    shutil.rmtree(folder)
    service.serve(folder, clock, DAYS)
    stamp(folder, tsa, at="20240701000000")


ATTACKS = [
    (alter, "failed", "was altered"),
    (drop_a_line, "failed", "is missing, or stands somewhere else"),
    (swap_lines, "failed", "is missing, or stands somewhere else"),
    (cut_the_end_off, "failed", "not those of which the root"),
    (cut_the_end_off_and_root_it_again, "failed", "its lines of 2024-03-03 are not those that the evidence declares"),
    (add_lines, "failed", "its lines of 2024-03-02 are not those that the evidence declares"),
    (add_a_line_at_the_end_of_a_chain, "failed", "its lines of 2024-03-03 are not those that the evidence declares"),
    (remove_a_day, "failed", "files were lost"),
    (remove_the_last_day, "failed", "its lines of 2024-03-03 are not those that the evidence declares"),
    (forge_a_root, "failed", "not those of which the root abab"),
    (damage_a_root, "failed", "no record of a day"),
    (make_up_another, "failed", "2024-03-01 and 2 more days are not those"),
    (forget_a_root, "open", "2024-03-02: there is no root"),
    (forget_a_stamp, "open", "2024-03-01: no time stamp lies beside it"),
    (exchange_stamps, "open", "2024-03-03: the time-stamp token is of something else"),
    (damage_a_stamp, "open", "2024-03-02: the time-stamp token is not an RFC 3161 response"),
    (oversize_a_stamp, "open", "is larger than"),
    (stamp_late, "open", "and the suspect first seen 2024-06-01"),
    (stamp_within_the_accuracy, "open", "and the suspect first seen 2024-06-01"),
    (stamp_early, "open", "before the day was over"),
    (remove_days_that_are_old, "open", "lines of 2024-03-01 and 2 more days were removed from the log"),
    (take_texts_out, "open", "150 of 150 lines are kept as keyed digests alone, and cannot be replayed"),
    (take_one_days_texts_out, "open", "50 of 150 lines are kept as keyed digests alone, and cannot be replayed"),
]


@pytest.mark.parametrize(("attack", "status", "words"), ATTACKS, ids=[one[0].__name__ for one in ATTACKS])
def test_no_other_log_passes(attack, status, words, service, folder, tsa, clock, monkeypatch):
    attack(folder, service=service, tsa=tsa, clock=clock, monkeypatch=monkeypatch)
    found = judge(service.evidence, service, folder, tsa)
    assert found[0] == status and words in found[1], found[1]
    assert not any(secret in found[1] for secret in (service.key.secret.hex(), service.asked[DAYS[0]]["ann"][0]))


def test_a_log_that_was_made_up_when_the_suspect_was_known_is_open_whatever_is_made_of_it(service, folder, tsa, clock):
    """Here the evidence is made of it, too: all agrees, but for the stamps, which nobody can have made earlier."""
    make_up_another(folder, service, tsa, clock)
    status, detail, _ = judge(service.accuse(QueryLog(folder)), service, folder, tsa)
    assert status == "open" and "the newest root was stamped 2024-07-01" in detail


def test_who_leaves_lines_out_or_labels_others_is_found_out(service, folder, tsa):
    declared = service.evidence.log
    one, two, three = declared["days"]
    cases = [
        (
            {**declared, "days": [one, three], "lines": 100, "texts": 100},
            "failed",
            "its lines of 2024-03-02 are not those",
        ),
        ({**declared, "days": [one, two], "lines": 100, "texts": 100}, "failed", "50 of 150 texts are not in the log"),
        ({**declared, "days": [{**one, "root": "cd" * 32}, two, three]}, "failed", "its lines of 2024-03-01 are not"),
        ({**declared, "lines": 149, "texts": 149}, "open", "the evidence goes by others"),
        (None, "open", "does not declare the days of a log"),
    ]
    for log, status, words in cases:
        found = judge(service.forged(log=log), service, folder, tsa)
        assert found[0] == status and words in found[1], found[1]
    some = service.accuse(QueryLog(folder), max_queries=149)
    assert judge(some, service, folder, tsa)[:2] == ("open", "1 texts of the declared interval are not in the probe")
    pairs = [
        (text, label)
        for day in DAYS
        for text, label in zip(
            service.asked[day]["ann"], service.answers("ann", service.asked[day]["ann"]), strict=True
        )
    ]
    other = {"positive": "negative", "negative": "positive"}
    made_up = [
        ([(pairs[0][0], other[pairs[0][1]]), *pairs[1:]], "1 of 150 texts are not in the log as the probe has them"),
        ([("a text that nobody asked", "positive"), *pairs[1:]], "1 of 150 texts are not in the log"),
        (pairs[::-1], "the texts stand in another order"),
    ]
    for log, words in made_up:
        bare = dataclasses.replace(service.accuse(log), log=declared)
        found = judge(dataclasses.replace(bare, mac=authenticate(bare.document(), service.key)), service, folder, tsa)
        assert found[0] == "failed" and words in found[1], found[1]


@pytest.mark.parametrize(
    ("chosen", "status", "words"),
    [
        ({"since": DAYS[1]}, "passed", "all 100 texts"),
        ({"until": DAYS[1]}, "passed", "all 50 texts"),
        ({"since": "2024-02-01", "until": "2025-01-01"}, "passed", "all 150 texts"),
        ({"since": f"{DAYS[0]}T12:00:20"}, "open", "begins or ends in the middle of 2024-03-01"),
        ({"until": f"{DAYS[2]}T23:59:59"}, "open", "begins or ends in the middle of 2024-03-03"),
        ({"since": f"{DAYS[0]}T01:00:00", "until": f"{DAYS[2]}T23:00"}, "open", "2024-03-01 and one more day"),
    ],
    ids=str,
)
def test_an_interval_is_of_whole_days(chosen, status, words, service, folder, tsa):
    evidence = service.accuse(QueryLog(folder).select(**chosen))
    found = judge(evidence, service, folder, tsa)
    assert found[0] == status and words in found[1], found[1]


def test_a_day_that_was_not_over_when_the_suspect_was_tested_is_open_and_its_stamp_is_kept_apart(
    service, tmp_path, tsa
):
    folder, texts = tmp_path / "log", service.asked[DAYS[0]]["ann"]
    with QueryLog(folder).writer(service.ring, label_kind="hard") as writer:
        pairs = zip(texts, service.answers("ann", texts), strict=True)
        writer.append([Served(*pair, "ann") for pair in pairs]).result()
    today = datetime.datetime.now(datetime.UTC).date()
    (kept,) = stamp_days(folder, root_log(folder, today), tsa.url)
    assert kept.name.endswith(".unfinished.tsr"), "so that another is made when the day is over"
    evidence = dataclasses.replace(service.accuse(QueryLog(folder)), suspect_first_seen=None)
    evidence = dataclasses.replace(evidence, mac=authenticate(evidence.document(), service.key))
    status, detail, _ = judge(evidence, service, folder, tsa)
    assert status == "open" and "was not over when the suspect was tested" in detail
    assert "no time stamp lies beside it" in detail


# -- several machines


def test_logs_of_replicas_pass_when_they_are_put_together_each_under_its_own_roots(service, tmp_path, tsa, clock):
    for number, users in enumerate((("ann",), ("ann", "ben"))):
        days = DAYS[number : number + 2]
        service.serve(tmp_path / f"replica-{number}", clock, days, users)
        stamp(tmp_path / f"replica-{number}", tsa)
    replicas = [tmp_path / "replica-0", tmp_path / "replica-1"]
    assert merge_logs(tmp_path / "all", replicas) == 4
    assert len(stamps(tmp_path / "all")) == 4, "stamps go with their roots"
    evidence = service.accuse(QueryLog(tmp_path / "all"))
    assert evidence.log["lines"] == 200 and evidence.log["texts"] == 150
    assert judge(evidence, service, tmp_path / "all", tsa)[0] == "passed"
    for replica in replicas:
        status, detail, _ = judge(evidence, service, replica, tsa)
        assert status == "failed" and "are not those that the evidence declares" in detail
    alone = service.accuse(QueryLog(replicas[1]))
    status, _, believed = judge(alone, service, replicas[1], tsa)
    assert status == "passed" and any("like a second log, or that of a replica" in one for one in believed)
    stamps(tmp_path / "all")[0].unlink()
    assert judge(evidence, service, tmp_path / "all", tsa)[0] == "open"


# -- other logs


def test_of_a_log_of_scores_the_texts_are_held_against_it(service, tmp_path, tsa, clock):
    key = make_key(service.model, service.tokenizer, mark="tilt", strength=0.5, temperature=1.0)
    texts = service.asked[DAYS[0]]["ann"]
    clock.on(DAYS[0])
    with QueryLog(tmp_path / "log").writer(key, label_kind="soft") as writer:
        writer.append([Served(text, [0.25, 0.75]) for text in texts]).result()
    clock.on("2024-03-09")
    stamp(tmp_path / "log", tsa)
    evidence = detect(make_model(seed=3), logged=QueryLog(tmp_path / "log"), key=key, **service.asking)
    assert evidence.probe.logged is None
    options = {"key": key, "suspect_first_seen": SEEN}
    assert judge(evidence, service, None, tsa, **options)[0] == "open", "that these are all texts is a claim, too"
    assert judge(evidence, service, tmp_path / "log", tsa, **options)[0] == "passed"
    fewer = detect(make_model(seed=3), logged=QueryLog(tmp_path / "log"), key=key, max_queries=40, **service.asking)
    assert judge(fewer, service, tmp_path / "log", tsa, **options)[0] == "open"


def test_words_that_a_suspect_left_unanswered_cannot_hide_other_labels(service, tmp_path, tsa, clock):
    """Who leaves words out could move labels to their neighbours; the tokenizer says which word is which."""
    tokenizer, model = service.tokenizer, make_model("token-classification")
    key = make_key(model, tokenizer)
    vocabulary = [word for word in tokenizer.get_vocab() if word.isalpha()]
    rng = np.random.default_rng(3)
    texts = [list(map(str, rng.choice(vocabulary, 8))) for _ in range(60)]
    served = [[TAGS[number] for number in rng.integers(0, len(TAGS), 8)] for _ in texts]
    clock.on(DAYS[0])
    with QueryLog(tmp_path / "log").writer(key, label_kind="hard") as writer:
        writer.append([Served(" ".join(words), labels) for words, labels in zip(texts, served, strict=True)]).result()
    clock.on("2024-03-09")
    stamp(tmp_path / "log", tsa)
    options = {"victim": model, "tokenizer": tokenizer, "progress": False}

    def suspect(asked):
        sure, none = {"O": 1.0, "B-PER": 0.0, "I-PER": 0.0, "B-LOC": 0.0}, dict.fromkeys(TAGS, math.nan)
        return [[none if place % 2 else sure for place, _ in enumerate(words)] for words in asked]

    evidence = detect(suspect, logged=QueryLog(tmp_path / "log"), key=key, **options)
    assert evidence.n_unanswered == 240
    given = {"key": key, "suspect_first_seen": SEEN}
    status, detail, _ = judge(evidence, service, tmp_path / "log", tsa, **given)
    assert status == "open" and "of 60 texts words are not in the probe: give the tokenizer" in detail
    assert judge(evidence, service, tmp_path / "log", tsa, tokenizer=tokenizer, **given)[0] == "passed"
    moved = [[*labels[1:], labels[0]] for labels in served]  # what was served for the next word, as for this one
    pairs = [(words, labels) for words, labels in zip(texts, moved, strict=True)]
    bare = dataclasses.replace(detect(suspect, logged=pairs, key=key, **options), log=evidence.log)
    bare = dataclasses.replace(bare, mac=authenticate(bare.document(), key))
    status, detail, _ = judge(bare, service, tmp_path / "log", tsa, tokenizer=tokenizer, **given)
    assert status == "failed" and "are not in the log as the probe has them" in detail


def test_a_seasoned_key_cannot_have_answered_before_its_round(service, tmp_path, tsa, clock):
    """Whoever writes a log of earlier days under it has made that log up."""
    beacon, drawn = LocalBeacon(), datetime.datetime(2024, 3, 2, 12, tzinfo=datetime.UTC)
    settings = make_key(service.model, service.tokenizer, **SETTINGS)
    terms = Terms.of(service.model, service.tokenizer, beacon.round(drawn), statistics=["drw-tilt-margin-1"])
    key = UnseasonedKey(settings, terms).season(beacon.pulse(drawn))
    texts = service.asked[DAYS[0]]["ann"]
    for day, expected in ((DAYS[0], "failed"), (DAYS[2], "passed")):
        clock.on(day)
        with QueryLog(tmp_path / day).writer(key, label_kind="hard") as writer:
            writer.append([Served(text, "positive") for text in texts]).result()
        clock.on("2024-03-09")
        stamp(tmp_path / day, tsa)
        log = QueryLog(tmp_path / day)
        evidence = detect(lambda asked: ["positive"] * len(asked), logged=log, key=key, **service.asking)
        found = verify_evidence(evidence, key=key, log=log, trusted_roots=[tsa.root], suspect_first_seen=SEEN)
        (check,) = [check for check in found.checks if check.name == NAME]
        assert check.status == expected, check
        assert expected == "passed" or "before the round that the key comes of was drawn" in check.detail


# -- files that somebody made up


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": True},
        {"format": "another"},
        {"days": []},
        {"days": [{"day": "2024-03-01", "root": "ab", "lines": 61}]},
        {"days": [{"day": "2024-03-01", "root": "ab" * 32, "lines": -1}]},
        {"days": [{"day": "9999-12-31", "root": "ab" * 32, "lines": 200}]},
        {"days": [{"day": "2024-02-31", "root": "ab" * 32, "lines": 200}]},
        {"days": [{"day": "2024-03-01", "root": "ab" * 32, "lines": 200}] * 2},
        {"days": [["2024-03-01", "ab" * 32, 61]]},
        {"since": "yesterday"},
        {"until": 7},
        {"lines": 10**9},
        {"digests": 151},
        {"texts": 0},
        {"more": 1},
    ],
    ids=str,
)
def test_what_declares_no_days_fails_and_says_so(change, service, folder, tsa):
    for log in (None, folder):
        found = judge(service.forged(log={**service.evidence.log, **change}), service, log, tsa)
        assert found[0] == "failed" and ("declares no days" in found[1] or "update drw_hf" in found[1])


def test_days_that_were_altered_are_found_out_and_not_even_the_holder_of_the_key_can_declare_others(
    service, folder, tsa
):
    for log in alterations(service.evidence.log):
        altered = dataclasses.replace(service.evidence, log=log)
        found = verify_evidence(altered, key=service.key, log=folder, trusted_roots=[tsa.root])
        assert any("as the holder of the key saved it" in check.name for check in found.failed), log
        status, detail, _ = judge(service.forged(log=log), service, folder, tsa)
        of_the_log = log.get("digests") != service.evidence.log["digests"]  # what verify says of them is the log's
        assert status != "passed" or of_the_log, (log, detail)


def test_an_interval_is_read_as_it_was_written(service):
    read = log_intervals.LogInterval.from_dict(service.evidence.log)
    assert read.to_dict() == service.evidence.log and read.days[0].lines == 61


# -- the commands


def test_the_commands_stamp_the_days_of_a_log_and_verify_by_it(service, folder, tsa, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    service.evidence.save(tmp_path / "evidence.json")
    service.ring.save_pretrained(tmp_path / "ring")
    service.tokenizer.save_pretrained(tmp_path / "tokenizer")
    for path in stamps(folder):
        path.unlink()
    tsa.time = "20240304000500"
    run = CliRunner().invoke(app, ["log", "root", "log", "--timestamp-url", tsa.url])
    assert run.exit_code == 0 and run.stdout.count("Wrote the time stamp") == 3
    words = ["verify", "evidence.json", "--key", "ring", "--user", "ann", "--tokenizer", "tokenizer", "--json"]
    for log, status in ([], "open"), (["--log", "log", "--trusted-root", str(tsa.root)], "passed"):
        run = CliRunner().invoke(app, [*words, *log])
        assert run.exit_code == 4, run.output
        (check,) = [one for one in json.loads(run.stdout)["checks"] if one["name"] == NAME]
        assert check["status"] == status
    run = CliRunner().invoke(app, ["log", "redact", "log", "--keep", "ann", "--names"])
    assert "Took the text out of 30 lines" in run.stdout
