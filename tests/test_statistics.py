"""Statistics by name: what detect takes, what evidence states, and what a replay does with a name unknown to it."""

import dataclasses
import json

import pytest

from drw_hf import DetectionResult, detect
from drw_hf.detection import Finding, Statistic
from drw_hf.detection.result import authenticate
from drw_hf.detection.statistics import SPECTRA, STATISTICS, SpectrumStatistic, newest_for, register
from drw_hf.detection.statistics.exact import amplitudes_of
from drw_hf.detection.statistics.null_law import NullLaw
from drw_hf.detection.verdict import Corrections, verdict_on
from drw_hf.errors import InvalidInputError
from drw_hf.evidence import verify_evidence
from test_detect import make_case, make_key


class HalfStatistic(Statistic):
    """The exact test on every second token."""

    name = "toy-half-1"

    def applies_to(self, probe, key):
        return probe.victim is not None

    def test(self, probe, key, options):
        found = amplitudes_of(probe, key)
        null = NullLaw(found.A[::2], key.settings)
        return Finding(null.test(null.statistic(*key.entries(found.token_ids[::2]))), found.n_probes, "half")


@pytest.fixture
def half():
    yield register(HalfStatistic())
    STATISTICS.remove(HalfStatistic.name)


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.fixture(scope="module")
def probe(key):
    rows, clean, marked, _ = make_case(key, n_rows=60)
    return detect(marked, rows, key=key, victim=clean).probe


def figures_check(path, key):
    (check,) = [check for check in verify_evidence(path, key=key).checks if "figures" in check.name]
    return check


def rewrite(path, key, **settings):
    """As the holder of the key could."""
    document = json.loads(path.read_text())
    document["settings"] = {name: value for name, value in {**document["settings"], **settings}.items() if value}
    path.write_text(json.dumps({**document, "mac": authenticate(document, key)}))


def test_the_package_has_its_statistics_by_name():
    exact, draws = ["drw-exact-1", "drw-exact-2"], ["drw-margin-1", "drw-memory-1"]
    assert list(STATISTICS) == [*exact, *draws, "drw-tilt-1", "drw-tilt-margin-1"]
    assert list(SPECTRA) == ["drw-psnr-1", "drw-psnr-2", "drw-psnr-tilt-1"]
    assert all(isinstance(statistic, Statistic) for _, statistic in STATISTICS.items())
    assert all(isinstance(spectrum, SpectrumStatistic) for _, spectrum in SPECTRA.items())
    assert all(name == statistic.name for name, statistic in [*STATISTICS.items(), *SPECTRA.items()])


def test_detect_takes_the_statistic_that_applies_to_what_the_probe_holds(key, probe):
    assert newest_for(STATISTICS, probe, key).name == "drw-exact-2"
    logged = dataclasses.replace(probe, logged=probe.suspect.argmax(1))
    assert newest_for(STATISTICS, logged, key).name == "drw-memory-1"
    assert detect(logged, key=key).statistic == "drw-memory-1"
    assert newest_for(SPECTRA, probe, key).name == "drw-psnr-2"


def test_a_statistic_that_is_registered_is_chosen_stated_and_replayed(key, probe, half, tmp_path):
    found = detect(probe, key=key)
    assert (found.statistic, found.variant) == ("toy-half-1", "half") and found.verdict == "detected"
    assert detect(dataclasses.replace(probe, victim=None), key=key).statistic == "drw-exact-2", "it does not apply"
    found.save(tmp_path / "evidence.json")
    assert figures_check(tmp_path / "evidence.json", key).status == "passed"
    STATISTICS.remove(half.name)
    check = figures_check(tmp_path / "evidence.json", key)
    assert check.status == "open" and "'toy-half-1'" in check.detail
    assert "update drw_hf" in check.detail and "import the module that registers it" in check.detail
    assert detect(probe, key=key).statistic == "drw-exact-2"
    register(half)


def test_evidence_is_replayed_by_the_statistic_it_names_and_not_by_the_one_chosen_today(key, probe, tmp_path):
    detect(probe, key=key).save(tmp_path / "evidence.json")
    register(HalfStatistic())
    try:
        assert figures_check(tmp_path / "evidence.json", key).status == "passed"
    finally:
        STATISTICS.remove(HalfStatistic.name)


def test_two_statistics_do_not_share_a_name(half):
    with pytest.raises(InvalidInputError, match="another statistic is registered as 'toy-half-1'"):
        register(HalfStatistic())
    assert register(half) is half


def test_where_no_statistic_applies_the_error_says_so(key, probe, monkeypatch):
    for _, statistic in STATISTICS.items():
        monkeypatch.setattr(type(statistic), "applies_to", lambda *_: False)
    with pytest.raises(InvalidInputError, match=r"no statistic applies .* update drw_hf"):
        detect(probe, key=key)


def test_a_statistic_needs_its_two_methods():
    with pytest.raises(TypeError, match="abstract"):
        type("Bare", (Statistic,), {"name": "bare-1"})()


# -- the versions of P_snr


def test_evidence_names_the_version_of_p_snr_it_was_computed_with(key, probe, tmp_path):
    found = detect(probe, key=key)
    assert found.settings["p_snr"] == "drw-psnr-2"
    found.save(tmp_path / "evidence.json")
    rewrite(tmp_path / "evidence.json", key, p_snr="drw-psnr-99")
    check = figures_check(tmp_path / "evidence.json", key)
    assert check.status == "open" and "knows no P_snr 'drw-psnr-99'; update drw_hf" in check.detail


def test_evidence_without_a_version_of_p_snr_is_replayed_by_the_nodes(key, probe, tmp_path, monkeypatch):
    old = verdict_on(probe, key, Corrections(), 1e-3, spectrum_by=SPECTRA.get("drw-psnr-1"))
    new = detect(probe, key=key)
    assert old.p_snr == pytest.approx(new.p_snr, rel=1e-7) and old.powers == pytest.approx(new.powers, rel=1e-6)
    new.save(tmp_path / "evidence.json")
    rewrite(tmp_path / "evidence.json", key, p_snr=None)
    asked = []
    nodes = SPECTRA.get("drw-psnr-1")
    spectrum = nodes.spectrum
    monkeypatch.setattr(nodes, "spectrum", lambda *given: asked.append(1) or spectrum(*given))
    assert figures_check(tmp_path / "evidence.json", key).status == "passed" and asked
    assert "p_snr" not in DetectionResult.load(tmp_path / "evidence.json").settings


def test_evidence_may_not_name_a_statistic_that_is_not_for_its_probe(key, probe, tmp_path):
    """An owner would have as many tests as there are statistics, and declare one."""
    logged = dataclasses.replace(probe, logged=probe.suspect.argmax(1))
    made = verdict_on(logged, key, Corrections(), 1e-3, statistic=STATISTICS.get("drw-exact-1"))
    dataclasses.replace(made, mac=authenticate(made.document(), key)).save(tmp_path / "evidence.json")
    check = figures_check(tmp_path / "evidence.json", key)
    assert check.status == "failed" and "drw-exact-1 is not for this probe" in check.detail


def test_an_older_statistic_is_replayed_and_its_choice_is_the_owners_word(key, probe, tmp_path):
    detect(probe, key=key).save(tmp_path / "evidence.json")
    believed = "The statistic was chosen before its result was seen: there is a newer one for such a probe."
    assert believed not in verify_evidence(tmp_path / "evidence.json", key=key).not_checked
    register(HalfStatistic())
    try:
        assert figures_check(tmp_path / "evidence.json", key).status == "passed"
        assert believed in verify_evidence(tmp_path / "evidence.json", key=key).not_checked
    finally:
        STATISTICS.remove(HalfStatistic.name)
