"""The evidence report: what its page says, what a redacted one does not, and how both look in a browser."""

import base64
import dataclasses
import html
import json
import re
import shlex
import shutil
import stat
import subprocess
import unicodedata
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

from drw_hf import DetectionResult, detect
from drw_hf.asking.log_intervals import DayRoot, LogInterval
from drw_hf.cli.main import app
from drw_hf.errors import EvidenceError, InvalidInputError, KeyFileError
from drw_hf.evidence.commitments import CommitmentRecord
from drw_hf.evidence.report import (
    EVIDENCE,
    PAGE,
    REDACTED_EVIDENCE,
    REDACTED_FORMAT,
    REDACTED_PAGE,
    WITHHELD,
    published,
)
from drw_hf.evidence.timestamps import Timestamp
from drw_hf.evidence.verify import verify_evidence
from drw_hf.wording import one_in, small_p
from needles import leaks_in
from small_models import TAGS, make_special_tokenizer
from test_detect import make_case, make_key

COMMITTED = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECTIONS = ["claim", "chance", "who", "probed", "figures", "numbers", "tried", "limits", "replay", "about"]
HOSTILE = "<script>alert(1)</script>\"'&`${x}$\\alpha$ \u202egnp.\u200f\x00\x1b[2J\ud800\u0627\u0644 " + "W" * 4000

# The fields of a result that a redacted report may depend on; every other one makes no difference to it.
SHOWN = {
    "n_unanswered",
    "controls",
    "verdict",
    "log10_p",
    "log10_bound",
    "z_score",
    "level",
    "keys_tried",
    "suspects_tested",
    "looks",
    "statistic",
    "variant",
    "n_queries",
    "suspect",
    "label_map",
    "suspect_first_seen",
    "key_fingerprint",
    "key_commitment",
    "commitment",
    "probe_digest",
    "mac",
    "versions",
    "created_at",
}


@pytest.fixture(scope="module")
def key():
    return make_key(frequency=17.25, tau=0.4375, epsilon=0.3125, scope="all")


@pytest.fixture(scope="module")
def record(key):
    return CommitmentRecord(
        commitment=key.commitment(),
        repo_id="owner/model",
        repo_type="model",
        commit="c" * 40,
        date=COMMITTED,
        path="drw_commitments/0123456789abcdef.txt",
    )


@pytest.fixture(scope="module")
def stamped(record):
    stamp = Timestamp(COMMITTED + timedelta(hours=1), timedelta(seconds=1), "CN=Some TSA", 7, "1.2.3")
    return dataclasses.replace(record, timestamp=stamp, timestamp_status="verified")


@pytest.fixture(scope="module")
def found(key, record):
    rows, clean, marked, _ = make_case(key, n_rows=120)
    options = {"keys_tried": 3, "looks": 2, "simulated_keys": 50, "logged_counts": np.ones(key.vocab_size)}
    return detect(marked, rows, key=key, victim=clean, commitment=record, suspect_first_seen="2026-04-01", **options)


@pytest.fixture(scope="module")
def results(key, found):
    """A result of every kind."""
    rows, clean, innocent, _ = make_case(key, mark=False, n_rows=200)
    hard, taught, repeats, served = make_case(key, n_rows=60, label_kind="hard")
    lean = {"verdict": "undecided", "log10_p": -1.6, "log10_bound": -1.1, "tokens_needed": 4321}
    return {
        "detected": found,
        "not detected": detect(innocent, rows, key=key, victim=clean),
        "undecided": detect(innocent[:20], rows[:20], key=key),
        "leaning": dataclasses.replace(found, **lean),
        "memory": detect(repeats, hard, key=key, victim=taught, logged=served.argmax(-1).tolist()),
    }


class Page(HTMLParser):
    """A page's elements, and the text of its sections."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements, self.sections, self._inside = [], {}, "page"
        self.feed(self.source)
        self.sections = {name: " ".join("".join(parts).split()) for name, parts in self.sections.items()}

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if tag == "section" or attributes.get("id"):
            self._inside = attributes["id"]
        elif tag in ("h1", "footer"):
            self._inside = tag

    def handle_data(self, data):
        self.sections.setdefault(self._inside, []).append(data)

    def __getitem__(self, section):
        return self.sections[section]

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def pictures(self):
        return [base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")) for image in self.all("img")]


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """The page of a result, written once for all tests."""
    written = {}

    def write(result, *, redact=False):
        if (id(result), redact) not in written:
            path = result.report(tmp_path_factory.mktemp("report"), redact=redact)
            written[id(result), redact] = result, Page(path)  # with the result, whose id stays its own
        return written[id(result), redact][1]

    return write


# -- what the page says


@pytest.mark.parametrize("kind", ["detected", "not detected", "undecided", "leaning", "memory"])
@pytest.mark.parametrize("redact", [False, True])
def test_every_kind_of_result_has_every_section(results, page_of, kind, redact):
    page = page_of(results[kind], redact=redact)
    assert [section["id"] for section in page.all("section")] == SECTIONS
    assert all(len(page[name]) > 100 for name in SECTIONS)
    assert results[kind].verdict.capitalize() in page["verdict"]
    assert f"{results[kind].verdict.capitalize()} means" in page["claim"]
    assert not re.search(r"\b(None|nan|inf)\b", " ".join(page.sections.values()))


def test_a_detection_is_told_in_plain_words(found, page_of):
    page = page_of(found)
    decades = int(-found.log10_bound)
    assert decades > 20
    for section in ("verdict", "claim", "chance"):
        assert f"at most one in 1e{decades}" in page[section]
    assert f"a one with {decades} zeros" in page["chance"] and "All 6 combinations" in page["chance"]
    assert "not the chance that the suspect is innocent" in page["chance"]
    assert "one in 1,000" in page["claim"] and found.explanation in page["claim"]
    assert "multiplied by 6" in page["tried"] and "Keys tried3" in page["tried"]


def test_what_was_not_found_is_not_called_innocence(results, page_of):
    page = page_of(results["not detected"])
    assert "does not prove" in page["claim"] and "free of marked answers" in page["limits"]
    assert "in 100" in page["chance"] and "only test" in page["tried"]
    assert "free of marked answers" not in page_of(results["detected"])["limits"]


def test_an_undecided_result_says_why_and_what_would_decide(results, page_of):
    few, lean = page_of(results["undecided"]), page_of(results["leaning"])
    assert "too few different tokens" in few["claim"] and "lean towards the key" in lean["claim"]
    assert "4,321 distinct tokens" in lean["claim"] and f"there were {results['leaning'].n_tokens:,}" in lean["claim"]
    for page in (few, lean):
        assert "no finding for or against" in page["claim"]


def test_the_memory_test_is_explained_as_what_it_is(results, page_of):
    page = page_of(results["memory"])
    assert "repeats labels" in page["claim"] and "how the labels fell" in page["chance"]
    assert "marked items" in page["probed"] and "drw-memory-1" in page["probed"]


def test_how_it_was_probed_is_told(found, results, page_of):
    page = page_of(found)
    for value in (f"{found.n_queries:,}", f"{found.n_probes:,}", f"{found.n_tokens:,}", f"{found.n_effective:,.1f}"):
        assert value in page["probed"]
    assert found.probe_digest in page["probed"] and found.variant in page["probed"] and "Yes:" in page["probed"]
    assert "No: the suspect's own answers" in page_of(results["undecided"])["probed"]


@pytest.mark.parametrize("redact", [False, True])
def test_labels_that_the_owner_matched_are_told_in_both_reports(found, page_of, redact):
    renamed = dataclasses.replace(found, label_map={"LABEL_0": "O", "LABEL_1": "B-PER"})
    page = page_of(renamed, redact=redact)
    assert "“LABEL_0” is “O”; “LABEL_1” is “B-PER”" in page["probed"]
    assert "was the owner's choice" in page["limits"]
    calm = page_of(found, redact=redact)
    assert "as the owner matched them" not in calm["probed"] and "owner's choice" not in calm["limits"]
    assert published(renamed)["label_map"] == renamed.label_map and published(found)["label_map"] is None


def test_the_full_page_discloses_what_it_says_it_does(found, key, page_of):
    page = page_of(found)
    assert page["notice"].startswith("CONFIDENTIAL.") and page["footer"].startswith("CONFIDENTIAL.")
    assert "as confidential as the key" in page.source.split("@top-center")[1].split("}")[0]
    assert "CONFIDENTIAL evidence report" in page["page"]
    for value in (key.target_label, "17.25", "0.4375", "all", key.law, key.hash_rule.name):
        assert value in page["numbers"]
    assert len(page.pictures()) == 3


@pytest.mark.parametrize(
    "status, first_seen, said, outcome",
    [
        (None, "2026-04-01", "refers to no commitment made beforehand", "code 4"),
        ("absent", "2026-04-01", "owner's word; it is not proven", "code 4"),
        ("absent", "2026-02-01", "not older than the suspect", "code 1"),
        ("absent", None, "not declared, so whether", "code 4"),
        ("not checked", "2026-04-01", "was not checked", "code 4"),
        ("verified", "2026-04-01", "The time stamp proves it", "exit code 0"),
        ("verified", "2026-03-01T12:30", "owner's word; it is not proven", "code 4"),
    ],
)
def test_the_page_says_what_the_date_of_the_commitment_is_worth(
    found, key, record, stamped, page_of, status, first_seen, said, outcome
):
    given = None if status is None else stamped if status == "verified" else record
    if status == "not checked":
        given = dataclasses.replace(record, timestamp_status=status)
    result = detect(found.probe, key=key, commitment=given, suspect_first_seen=first_seen)
    page = page_of(result)
    who, replay = page["who"], page["replay"]
    assert said in who and key.commitment() in who and outcome in replay
    assert ("--trusted-root ROOT.pem" in replay) == (status in ("verified", "not checked"))
    assert ("--repo owner/model" in replay) == (given is not None)
    assert ("2026-03-01 12:00:00 UTC" in who) == (given is not None)


@pytest.mark.parametrize(
    "log10, words",
    [
        (0.0, "100 in 100"),
        (np.log10(0.123), "13 in 100"),
        (np.log10(0.05), "one in 20"),
        (-3.0, "one in 1,000"),
        (-3.4, "one in 2,500"),
        (-6.99, "one in 9,700,000"),
        (-188.0, "one in 1e188"),
        (-188.9, "one in 1e188"),
    ],
)
def test_a_chance_in_words_is_never_smaller_than_it_is(log10, words):
    assert one_in(log10) == words


@pytest.mark.parametrize(
    "log10, nearest, up",
    [
        (0.0, "1", "1"),
        (np.log10(0.0123), "0.012", "0.013"),
        (np.log10(9.99e-4), "0.001", "0.001"),
        (np.log10(2.31e-5), "2.3e-5", "2.4e-5"),
        (np.log10(9.99e-5), "1e-4", "1e-4"),
        (-400.0, "1e-400", "1e-400"),
    ],
)
def test_p_values_are_written_out_below_the_smallest_float_too(log10, nearest, up):
    assert (small_p(log10), small_p(log10, up=True)) == (nearest, up)


@pytest.mark.parametrize(
    ("origin", "who", "chance"),
    [
        (None, "at random by the owner's word", "keys were tried in secret"),
        ("arrays", "Chosen by its owner", "nobody can tell"),
        ("seasoned", "Public randomness", "commitments were prepared in secret"),
    ],
)
def test_the_page_says_how_the_key_came_about_and_how_much_trying_the_finding_bears(
    found, tmp_path, origin, who, chance
):
    settings = dict(found.settings) if origin is None else {**found.settings, "origin": origin}
    result = dataclasses.replace(found, settings=settings)
    for redact in (False, True):
        page = Page(result.report(tmp_path / str(redact), redact=redact))
        assert who in page["who"] and chance in page["chance"]
        bound = np.ceil(found.log10_bound * 10) / 10 if redact else found.log10_bound
        assert (f"more than 10^{int(np.log10(found.level) - bound)} " in page["chance"]) == (origin != "arrays")
        assert ("--trusted-beacon" in page["replay"]) == (origin == "seasoned")
        assert "--tokenizer TOKENIZER" in page["replay"]
    document = json.loads((tmp_path / "True" / REDACTED_EVIDENCE).read_text())
    assert document["key_origin"] == origin
    assert ("owner chose its arrays" in Page(tmp_path / "False" / PAGE)["replay"]) == (origin == "arrays")


# -- the files behind it


def test_the_evidence_beside_the_page_can_be_replayed_as_the_page_says(found, key, tmp_path, monkeypatch):
    lone = detect(found.probe, key=key)
    page = Page(lone.report(tmp_path / "evidence"))
    assert sorted(path.name for path in (tmp_path / "evidence").iterdir()) == [EVIDENCE, "evidence.probe.npz", PAGE]
    assert DetectionResult.load(tmp_path / "evidence" / EVIDENCE) == lone
    assert not verify_evidence(tmp_path / "evidence" / EVIDENCE, key=key).failed
    key.save_pretrained(tmp_path / "key")
    monkeypatch.chdir(tmp_path / "evidence")
    program, *arguments = shlex.split(re.search(r"<pre><code>(.*)</code></pre>", page.source)[1])
    arguments[arguments.index("KEY")] = str(tmp_path / "key")
    make_special_tokenizer().save_pretrained(tmp_path / "tokenizer")
    arguments[arguments.index("TOKENIZER")] = str(tmp_path / "tokenizer")
    assert program == "drw-hf" and "exit code 4" in page["replay"]
    assert CliRunner().invoke(app, arguments).exit_code == 4


def test_files_are_for_the_owner_alone_unless_they_can_be_published(found, tmp_path):
    found.report(tmp_path / "full")
    found.report(tmp_path / "public", redact=True)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*/*")}
    assert modes == {
        PAGE: 0o600,
        EVIDENCE: 0o600,
        "evidence.probe.npz": 0o600,
        REDACTED_PAGE: 0o644,
        REDACTED_EVIDENCE: 0o644,
    }


def test_a_report_can_be_written_again_and_is_the_same(found, tmp_path):
    for redact in (False, True):
        folder = tmp_path / str(redact)
        first = found.report(folder, redact=redact).read_bytes()
        assert found.report(str(folder), redact=redact).read_bytes() == first


def test_a_result_without_its_probe_says_that_it_cannot_be_replayed(found, tmp_path):
    lone = dataclasses.replace(found, probe=None)
    page = Page(lone.report(tmp_path / "lone"))
    assert "cannot be replayed" in page["replay"] and not (tmp_path / "lone" / "evidence.probe.npz").exists()
    found.report(tmp_path / "whole")
    with pytest.raises(InvalidInputError, match="belongs to another result"):
        lone.report(tmp_path / "whole")


def test_full_and_redacted_reports_do_not_share_a_folder(found, key, tmp_path):
    found.report(tmp_path / "full")
    found.report(tmp_path / "public", redact=True)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    with pytest.raises(InvalidInputError, match="folder of its own"):
        found.report(tmp_path / "full", redact=True)
    with pytest.raises(InvalidInputError, match="into another folder"):
        found.report(tmp_path / "public")
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*")} == before
    key.save_pretrained(tmp_path / "key")
    found.save(tmp_path / "saved" / "finding.json")
    for place in ("key", "saved"):
        with pytest.raises(InvalidInputError, match="confidential"):
            found.report(tmp_path / place, redact=True)


def test_a_place_that_is_no_folder_is_refused(found, tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises((InvalidInputError, KeyFileError), match="file"):
            found.report(place)


@pytest.mark.parametrize(
    "change",
    [
        {"log10_p": "<b>"},
        {"log10_bound": float("-inf")},
        {"n_tokens": None},
        {"level": 0},
        {"verdict": "guilty"},
        {"settings": []},
        {"hash_values": ["x"]},
        {"commitment": "x"},
        {"tokens_needed": "<b>"},
        {"suspect": 3},
        {"label_map": {"a": 3}},
        {"label_map": ["a"]},
    ],
)
def test_a_result_that_somebody_made_up_is_refused(found, tmp_path, change):
    with pytest.raises(InvalidInputError, match=next(iter(change))):
        dataclasses.replace(found, **change).report(tmp_path / "evidence")
    assert not (tmp_path / "evidence").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp": {}},
        {"timestamp": {"time": None}},
        {"timestamp": {"time": "soon"}},
        {"timestamp": {"accuracy_seconds": "many"}},
        {"timestamp": {"accuracy_seconds": 1e300}},
        {"date": None},
    ],
)
def test_a_commitment_whose_time_cannot_be_read_is_refused_as_that(found, stamped, tmp_path, change):
    told = stamped.to_dict()
    told |= {name: value and {**told[name], **value} for name, value in change.items()}
    with pytest.raises(InvalidInputError, match="commitment of the result: this is not the record of a commitment"):
        dataclasses.replace(found, commitment=told).report(tmp_path / "evidence")


# -- redaction


def contents(result, folder):
    """The files of a redacted report, with what its pictures hold."""
    page = Page(result.report(folder, redact=True))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {**files, **{f"picture {index}": picture for index, picture in enumerate(page.pictures())}}


def another(value):
    """A value of the same kind that is not the same."""
    if isinstance(value, str):
        return f"{value} altered"
    if isinstance(value, list):
        return [each * 0.5 for each in value[::-1]]
    if isinstance(value, dict):
        return {**{name: value[name] for name in value if name == "task"}, "altered": "altered"}
    return value * 2 + 1


@pytest.mark.parametrize("kind", ["detected", "not detected", "undecided", "leaning", "memory"])
def test_a_redacted_report_does_not_depend_on_what_is_withheld(results, tmp_path, kind):
    result = results[kind]
    withheld = {entry.name for entry in dataclasses.fields(DetectionResult)} - SHOWN
    others = {"probe": None, "null_samples": np.arange(10.0), "tokens_needed": 99, "p_snr_p_value": 0.5}
    others["beside"] = {"variant": "labels-victim", "z_score": 3.14, "log10_p": -3.0, "log10_bound": -2.5}
    others["parts"] = {"tilt": {**others["beside"], "n_probes": 77}}
    days = (DayRoot("2026-03-01", "ab" * 32, 4375), DayRoot("2026-03-02", "cd" * 32, 3125))
    others["log"] = LogInterval(since=None, until=None, days=days, lines=4321, texts=1234, digests=7).to_dict()
    others |= {name: another(getattr(result, name)) for name in withheld - set(others)}
    altered = dataclasses.replace(result, **others)
    assert contents(result, tmp_path / "as it is") == contents(altered, tmp_path / "altered")


@pytest.mark.parametrize("kind", ["detected", "not detected", "undecided", "leaning", "memory"])
def test_a_redacted_report_holds_no_secret(results, key, tmp_path, kind):
    result = results[kind]
    held = contents(result, tmp_path / "public")
    assert sorted(held) == [REDACTED_EVIDENCE, "picture 0", REDACTED_PAGE]
    assert leaks_in(key, held.items()) == []
    secrets = {key.frequency, key.tau, key.epsilon, result.null_sd, result.observed, result.n_effective, result.p_snr}
    secrets |= {*result.hash_values[:200], *result.target_values[:200], *result.powers[:200]}
    if result.null_mean:
        secrets.add(result.null_mean)
    spelled = {f"{each:{form}}" for each in secrets for form in (".4g", ".6g", ".6f", ".3e", "")}
    spelled = {text.lstrip("-0") for text in spelled if len(text.strip("-0.")) > 3}
    spelled |= {"17.25", "17,25", "4375", "3125"}
    words = {*TAGS, "predicted", key.law, f"{result.n_probes:,}", str(result.n_tokens)}
    for place, content in held.items():
        text = re.sub(r"data:image[^\"]*|[0-9a-f]{12,}", "", content.decode())  # digests hold any digits by chance
        if not place.startswith("picture"):  # a picture is full of coordinates
            assert not [each for each in spelled if each in text], place
        for word in {word for word in words - {"O"} if word[0].isalpha() or not place.startswith("picture")}:
            assert not re.search(rf"(?<![\w,]){re.escape(word)}(?![\w,])", text), (place, word)


def test_the_redacted_picture_shows_the_score_and_nothing_else(found, tmp_path):
    """Not the simulated keys, whose histogram whoever has the answers could compare with one of their own."""
    first = contents(found, tmp_path / "a")["picture 0"]
    close = dataclasses.replace(found, z_score=round(found.z_score, 1), observed=0.0, null_samples=None)
    assert contents(close, tmp_path / "b")["picture 0"] == first


def test_the_days_of_a_log_are_shown_and_what_they_do_not_show(found, page_of, tmp_path):
    days = (DayRoot("2026-03-01", "ab" * 32, 61), DayRoot("2026-03-02", "cd" * 32, 4000))
    declared = LogInterval(since=None, until=None, days=days, lines=4001, texts=1234, digests=7).to_dict()
    page = page_of(dataclasses.replace(found, log=declared))
    assert "2, from 2026-03-01 to 2026-03-02" in page.source and "4,001, 1,234" in page.source
    assert "the log, which is its owner" in page.source and "holds the" in page.source
    assert "That no other log was stamped in secret, nobody can tell" in page.source
    with pytest.raises(InvalidInputError, match="log of the result: this declares no days of a log"):
        dataclasses.replace(found, log={**declared, "days": []}).report(tmp_path / "report")


def test_a_redacted_report_says_so_and_what_is_missing(found, page_of):
    page = page_of(found, redact=True)
    assert page["notice"].startswith("REDACTED.") and page["footer"].startswith("REDACTED.")
    assert all(each in page["notice"] for each in WITHHELD) and "Redacted evidence report" in page["page"]
    assert "CONFIDENTIAL" not in page.source and "cannot be replayed" in page["replay"]
    assert found.mac in page["replay"] and found.key_commitment in page["who"]


def test_the_redacted_json_cannot_be_taken_for_evidence(found, key, tmp_path):
    found.report(tmp_path / "public", redact=True)
    path = tmp_path / "public" / REDACTED_EVIDENCE
    document = json.loads(path.read_text())
    assert document == json.loads(json.dumps(published(found)))
    assert document["format"] == REDACTED_FORMAT and document["redacted"] is True and document["withheld"]
    assert document["log10_bound"] >= found.log10_bound > document["log10_bound"] - 0.11
    with pytest.raises(InvalidInputError):
        DetectionResult.load(path)
    with pytest.raises(EvidenceError):
        verify_evidence(path, key=key)


# -- text from outside


@pytest.mark.parametrize("redact", [False, True])
def test_what_others_wrote_stays_text(found, stamped, page_of, redact):
    told = {**stamped.to_dict(), "repo_id": HOSTILE, "path": HOSTILE, "explanation": HOSTILE, "commit": HOSTILE}
    told["timestamp"] = {**told["timestamp"], "authority": HOSTILE}
    hostile = {"suspect": HOSTILE, "target_label": HOSTILE, "explanation": HOSTILE, "statistic": HOSTILE}
    hostile |= {"key_fingerprint": HOSTILE, "key_commitment": HOSTILE, "created_at": HOSTILE, "variant": HOSTILE}
    hostile |= {"commitment": told, "versions": {HOSTILE: HOSTILE}, "mac": HOSTILE, "probe_digest": HOSTILE}
    hostile |= {"settings": dict.fromkeys(found.settings, HOSTILE), "label_map": {HOSTILE: HOSTILE}}
    page = page_of(dataclasses.replace(found, **hostile), redact=redact)
    calm = page_of(found, redact=redact)
    assert not page.all("script") and {tag for tag, _ in page.elements} == {tag for tag, _ in calm.elements}
    names = {name for _, attributes in page.elements for name in attributes}
    assert names == {name for _, attributes in calm.elements for name in attributes}
    assert "<script>alert(1)</script>" in page["who"] and "⟨U+202E⟩" in page["who"]
    invisible = {letter for letter in page.source if unicodedata.category(letter) in ("Cc", "Cf", "Cs")}
    assert invisible <= {"\n"}
    assert "W" * 2_001 not in page.source and "characters in all" in page["who"]


def test_a_suspect_without_a_name_has_a_report(found, page_of):
    assert "(without a name)" in page_of(dataclasses.replace(found, suspect=" "))["h1"]


def test_a_figure_takes_names_with_dollars_as_they_are(found, tmp_path):
    found = dataclasses.replace(found, suspect=r"$\frac$ model" + "x" * 200, target_label=r"$\nothing$")
    found.plot(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


# -- what a browser makes of it


@pytest.mark.parametrize("redact", [False, True])
def test_the_page_loads_nothing_and_is_well_formed(found, page_of, redact):
    page = page_of(found, redact=redact)
    for _, attributes in page.elements:
        assert all(
            value.startswith("data:") for name, value in attributes.items() if name in ("src", "href", "srcset")
        )
    assert "http:" not in page.source and "https:" not in page.source and "@import" not in page.source
    assert "url(" not in page.source and not page.all("link") and not page.all("a") and not page.all("script")
    assert "default-src 'none'" in page.all("meta")[1]["content"]
    headings = [tag for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings == ["h1"] + ["h2"] * len(SECTIONS)
    assert page.all("html") == [{"lang": "en"}] and page.source.startswith("<!DOCTYPE html>")
    assert all(cell.get("scope") == "row" for cell in page.all("th"))
    assert all(len(image["alt"]) > 30 for image in page.all("img"))
    for picture in page.pictures():
        assert b"<script" not in picture and not re.search(rb'href="(?!#|data:)', picture)


MEASURE = """
<script>
addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement, width = root.clientWidth;
    const all = [...page.body.querySelectorAll("*")];
    return {
      name: frame.title, width, scrolls: root.scrollWidth, title: page.title,
      sections: [...page.querySelectorAll("section")].filter(s => s.getBoundingClientRect().height > 60)
        .map(s => s.id),
      hidden: all.filter(e => !e.checkVisibility({visibilityProperty: true, opacityProperty: true})).length,
      outside: all.filter(e => { const r = e.getBoundingClientRect(); return r.left < 0 || r.right > width + .5; })
        .map(e => e.tagName),
      cut: all.filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")
        .map(e => e.tagName),
      pictures: [...page.images].map(image => [image.complete, image.naturalWidth, image.width]),
    };
  });
  document.body.replaceChildren(Object.assign(document.createElement("pre"), {id: "found"}));
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>
"""


@pytest.fixture
def browser(tmp_path):
    """Runs Chromium without a window; returns what it printed and what it complained of."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium is installed")

    def run(path, *options):
        always = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
        ]
        always += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1700,1200", "--no-first-run"]
        command = [program, *always, *options, path.as_uri()]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]

    return run


def test_nothing_is_missing_or_overflowing_in_a_browser(results, page_of, browser, tmp_path):
    hostile = dataclasses.replace(results["detected"], suspect=HOSTILE, target_label="L" * 400, explanation="e" * 3000)
    pages = {kind: page_of(results[kind]) for kind in results} | {"hostile": page_of(hostile)}
    pages |= {"redacted": page_of(hostile, redact=True)}
    frames = [
        f'<iframe title="{kind}" style="width: {width}px; height: 900px; border: 0" '
        f'srcdoc="{html.escape(page.source)}"></iframe>'
        for kind, page in pages.items()
        for width in (1200, 390)
    ]
    (tmp_path / "frames.html").write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{''.join(frames)}{MEASURE}")
    printed, complaints = browser(tmp_path / "frames.html", "--dump-dom", "--virtual-time-budget=10000")
    measured = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', printed)[1]))
    assert complaints == []
    assert len(measured) == len(frames) and {each["width"] for each in measured} <= {1200, 1185, 390, 375}
    for each in measured:
        assert each["scrolls"] <= each["width"], each
        assert each["sections"] == SECTIONS and each["title"]
        assert each["hidden"] == 0 and each["outside"] == [] and each["cut"] == [], each
        assert len(each["pictures"]) == (1 if each["name"] == "redacted" else 3)
        assert all(done and natural > 100 and shown > 250 for done, natural, shown in each["pictures"])


def test_the_page_prints_on_a4(found, browser, tmp_path):
    path = found.report(tmp_path / "evidence")
    _, complaints = browser(path, "--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'report.pdf'}")
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", (tmp_path / "report.pdf").read_bytes())
    assert complaints == [] and 3 <= len(boxes) <= 8
    assert all(abs(float(wide) - 595.3) < 1 and abs(float(high) - 841.9) < 1 for wide, high in boxes)
