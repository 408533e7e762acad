"""Profiles: those that come with the package, a user's own, and what they refuse."""

import tomllib

import pytest

from drw_hf.errors import ConfigurationError
from drw_hf.experiments import profiles
from drw_hf.experiments.profiles import Training, available, load_profile
from drw_hf.experiments.tasks import TASKS

OWN = """
tasks = ["pos", "sst2"]
students = 2
ablated = 1

[key]
epsilon = 0.1

[encoder]
layers = 1
width = 32
heads = 2
vocabulary = 300

[victim]
epochs = 4
learning_rate = 1e-3
batch_size = 16

[student]
epochs = 3
learning_rate = 2e-3
batch_size = 8

[sst2]
rows = 100

[sst2.student]
epochs = 9
keep = "best"
"""


@pytest.fixture
def load(tmp_path):
    """load(old, new): the profile above with something else in place of a part of it."""

    def load(old="", new="", **options):
        assert old in OWN
        path = tmp_path / "own.toml"
        path.write_text(OWN.replace(old, new, 1) if old else OWN)
        return load_profile(str(path), **options)

    return load


@pytest.mark.parametrize("name", ["minilm", "paper", "smoke", "tiny"])
def test_the_profiles_of_the_package_load_and_have_settings_for_their_tasks(name):
    profile = load_profile(name)
    assert profile.name == name and set(profile.settings) == set(profile.tasks) <= set(TASKS)
    assert profile.key == {"frequency": 16.0, "epsilon": 0.2, "tau": 0.5}, "the paper's"


def test_they_are_all_there_are_and_travel_with_the_package(request):
    assert available() == ["minilm", "paper", "smoke", "tiny"]
    packed = request.config.rootpath / "setup.cfg"
    assert "drw_hf.experiments =\n    profiles/*" in packed.read_text()


def test_the_paper_profile_has_the_papers_settings():
    profile = load_profile("paper")
    assert profile.students == profile.ablated == 10 and set(profile.tasks) == set(TASKS)
    assert profile.encoder.pretrained == "google-bert/bert-base-uncased"
    assert profile.settings["ner"].victim == Training(40, 1e-5, 32, weight_decay=0.01, keep="best")
    assert profile.settings["ner"].student == Training(20, 5e-5, 32)
    assert {profile.settings[task].student.batch_size for task in ("sst2", "mrpc")} == {8}
    assert all(settings.rows is None for settings in profile.settings.values()), "all of the data"


def test_a_copy_of_ones_own_is_given_by_its_path_and_named_after_its_file(load):
    profile = load()
    assert (profile.name, profile.tasks, profile.students, profile.ablated) == ("own", ("pos", "sst2"), 2, 1)
    assert profile.key == {"frequency": 16.0, "epsilon": 0.1, "tau": 0.5}
    assert profile.encoder.pretrained is None and profile.encoder.max_length == 128


def test_what_a_task_says_comes_before_what_is_said_of_all(load):
    profile = load()
    assert profile.settings["pos"].student == Training(3, 2e-3, 8)
    assert profile.settings["sst2"].student == Training(9, 2e-3, 8, keep="best")
    assert profile.settings["sst2"].victim == profile.settings["pos"].victim == Training(4, 1e-3, 16)
    assert (profile.settings["sst2"].rows, profile.settings["pos"].rows) == (100, None)


def test_a_pretrained_encoder_may_be_given_in_place_of_the_profiles(load):
    assert load(encoder="some/encoder").encoder.pretrained == "some/encoder"
    assert load_profile("paper", encoder="a folder").encoder.pretrained == "a folder"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["pos", "sst2"]', '["pos", "qa"]', r"tasks = \['pos', 'qa'\]; expected a list of some of \['sst2', 'mrpc'"),
        ('["pos", "sst2"]', "[]", "expected a list of some of"),
        ('["pos", "sst2"]', '"pos"', "expected a list of some of"),
        ("ablated", "ablate", r"\['ablate'\] are not known; expected \['ablated', 'encoder'"),
        ("ablated = 1", "", "ablated = None; expected a number, 1 or more"),
        ("students = 2", "students = 0", "students = 0; expected a number, 1 or more"),
        ("students = 2", 'students = "two"', "students = 'two'; expected a number"),
        ("epsilon", "eps", r"\[key\]: \['eps'\] are not known; expected \['frequency', 'epsilon', 'tau'\]"),
        ("epsilon = 0.1", 'epsilon = "0.1"', r"\[key\]: epsilon='0.1': expected a finite number"),
        ("width = 32", "", r"\[encoder\]: \['width'\] are missing"),
        ("[encoder]", "[sst2.victim]", r"\[sst2.victim\]: \['heads', 'layers', 'vocabulary', 'width'\] are not known"),
        ("learning_rate = 2e-3", "", r"\[pos.student\]: \['learning_rate'\] are missing"),
        ("rows = 100", "row = 100", r"\[sst2\]: \['row'\] are not known; expected \['victim', 'student', 'rows'"),
        ('keep = "best"', 'keep = "first"', r"\[sst2.student\]: keep = 'first'; expected 'last' or 'best'"),
        ("rows = 100", "rows = 0", r"\[sst2\]: rows = 0; expected a whole number, 1 or more"),
        (
            "learning_rate = 2e-3",
            'learning_rate = "2e-3"',
            r"\[pos.student\]: learning_rate = '2e-3'; expected a number",
        ),
        ("[key]\nepsilon = 0.1", "key = 0.1", r"key = 0.1; expected a table, \[key\]"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(load, old, new, message):
    with pytest.raises(ConfigurationError, match=f"profile own.*{message}"):
        load(old, new)


def test_a_name_that_is_none_and_a_file_that_is_not_toml_are_refused(load, tmp_path):
    with pytest.raises(ConfigurationError, match=r"no profile 'huge'; choose one of \['minilm', 'paper'"):
        load_profile("huge")
    with pytest.raises(ConfigurationError, match=r"or give the path of a \.toml file"):
        load_profile(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigurationError, match=r"own\.toml is not TOML: Unclosed array \(at line 3"):
        load('["pos", "sst2"]', '["pos"')


def test_every_setting_of_the_shipped_files_is_used():
    """A section for a task that is not among the profile's would be ignored without a word."""
    for name in available():
        found = tomllib.loads((profiles.FOLDER / f"{name}.toml").read_text())
        assert set(found) & set(TASKS) <= set(found["tasks"])
