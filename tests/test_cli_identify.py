"""Key rings and ``drw-hf identify`` on the command line: end to end with tiny models, exit codes, JSON, secrets."""

import base64
import json
import re
from pathlib import Path

import datasets
import pytest
from transformers import AutoConfig

from drw_hf import KeyRing, WatermarkedModelForSequenceClassification, WatermarkKey
from drw_hf.cli import passphrases
from drw_hf.keys import UserProof, sealing, verify_proof
from drw_hf.tracing import Identification
from drw_hf.wording import printable
from needles import leaks_in
from test_cli import PAGE, PASSPHRASE, bare, drw, make_tokenizer, save_model, without, write_log, write_rows

USERS = [*(f"customer-{number}" for number in range(60)), "ann", "bœb \N{ROBOT FACE}"]
RINGS = ["declare", "token", "key", "prove", "rotate"]


# -- a story: ann's answers are stolen


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a tagger, an innocent one, texts and lists of users."""
    folder = tmp_path_factory.mktemp("place")
    save_model(folder / "tagger", "token-classification", seed=2)  # says B-PER most of the time
    save_model(folder / "innocent", "token-classification", seed=1)
    write_rows(folder / "queries", 400, seed=0)
    write_rows(folder / "probes", 300, seed=1)
    write_rows(folder / "few", 4, seed=2)
    lists = {"users": USERS, "others": ["x", "ann"], "more": [*USERS, "new"], "twice": ["ann", "x", "ann"]}
    for name, users in {**lists, "empty": [], "blank": ["", " "]}.items():
        (folder / f"{name}.txt").write_text("".join(user + "\n" for user in users), encoding="utf-8")
    (folder / "passphrase").write_text(PASSPHRASE + "\n")
    return folder


@pytest.fixture(scope="module")
def story(environment):
    """The way from a tagger to a student that names the user whose answers it learned from."""
    lines = {
        "keygen": "keygen tagger --ring --target B-PER --output ring",
        "declare": "ring declare ring --users users.txt",
        "protect": "protect tagger --key ring --output served",
        "token": "ring token ring --user ann",
        "key": "ring key ring --user ann --output ann-key",
        "label": "label tagger queries.jsonl --key ann-key --output answers",
        "distill": "distill answers --student tagger --epochs 5 --learning-rate 1e-3 --output student",
        "identify": "identify student probes.jsonl --ring ring --users users.txt --victim served "
        "--output found/identification.json --plot found/users.png --resume search.db --top 3",
        "prove": "ring prove ring --user ann --users users.txt --output found/proof.json",
    }
    return {command: drw(f"{line} --json") for command, line in lines.items()}


def load_ring(folder="ring"):
    return KeyRing.from_pretrained(folder, passphrase=PASSPHRASE)


def new_ring(name, *users, plain=False):
    """A ring of its own for a test that changes it."""
    options = " --plain" if plain else ""
    made = drw(f"keygen tagger --ring --target B-PER --output {name}{options}", env=without() if plain else None)
    assert made.exit_code == 0, made.output
    if users:
        ring = load_ring(name)
        ring.declare(users).save_pretrained(name, passphrase=PASSPHRASE)
    return load_ring(name) if not plain else KeyRing.from_pretrained(name)


# -- rings


@pytest.mark.parametrize("command", ["keygen", "declare", "protect", "token", "key", "label", "distill", "prove"])
def test_json_is_one_document_alone_on_stdout(story, command):
    assert story[command].exit_code == 0, story[command].output
    assert isinstance(json.loads(story[command].stdout), dict)


def test_keygen_makes_a_sealed_ring_and_says_nothing_else_of_it(story, here):
    document = json.loads(story["keygen"].stdout)
    assert document == {"path": "ring", "sealed": True, "fingerprint": load_ring().fingerprint, "epoch": 0}
    assert json.loads((here / "ring" / "drw_ring.json").read_text())["sealed"]
    found = drw("keygen tagger --ring --target B-PER --tau 0.4 --output another")
    assert "drw-hf ring declare another" in found.stdout and "protect tagger --key another" in found.stdout
    assert load_ring("another").template().tau == 0.4
    assert list((here / "another").iterdir()) == [here / "another" / "drw_ring.json"]


def test_a_ring_and_a_user_stand_for_the_key_of_that_user(story, here):
    """The model may be the plain one or the one that is served with the ring."""
    answers = datasets.load_from_disk(here / "answers")["teacher_probs"][:]
    for model in ("tagger", "served"):
        assert drw(f"label {model} queries.jsonl --key ring --user ann --output {model}-to-ann").exit_code == 0
        assert datasets.load_from_disk(here / f"{model}-to-ann")["teacher_probs"][:] == answers
    assert drw("label served queries.jsonl --key ring --user x --limit 9 --output to-x.jsonl").exit_code == 0
    others = [json.loads(line)["teacher_probs"] for line in (here / "to-x.jsonl").read_text().splitlines()]
    assert [[list(word.values()) for word in row] for row in others] != answers[:9], "every user has marks of his own"
    found = drw("detect student probes.jsonl --key ring --user ann --victim served --output of-ann.json --json")
    assert json.loads(found.stdout)["key_fingerprint"] == load_ring().key_for("ann").fingerprint
    assert drw("verify of-ann.json --key ring --user ann").exit_code == 4, "no commitment, and nothing wrong"
    assert drw("verify of-ann.json --key ring --user x").exit_code == 1


@pytest.mark.parametrize("kind", ["", "--ring "])
def test_neither_a_ring_nor_a_key_is_overwritten_by_keygen(story, kind):
    for folder in ("ring", "ann-key"):
        found = drw(f"keygen tagger {kind}--target B-PER --output {folder}")
        assert found.exit_code == 1 and "another --output" in found.stderr
    assert drw("ring key ring --user x --output ann-key").exit_code == 1


def test_declare_keeps_root_and_count_in_the_ring_and_prints_the_root(story, here):
    document, declared = json.loads(story["declare"].stdout), load_ring().declared
    assert (document["root"], document["count"], document["epoch"]) == (declared.root, len(USERS), 0)
    fresh = new_ring("declared-later")
    found = drw("ring declare declared-later --users more.txt")
    assert found.exit_code == 0 and load_ring("declared-later").commitment() in found.stdout
    assert fresh.declare([*USERS, "new"]).commitment() in found.stdout and "ann" not in found.output


def test_a_plain_ring_stays_plain_and_a_sealed_one_sealed(here):
    for name, plain in (("stays-plain", True), ("stays-sealed", False)):
        new_ring(name, plain=plain)
        for line in (f"ring declare {name} --users users.txt", f"ring rotate {name}"):
            assert drw(line, env=without() if plain else None).exit_code == 0
        assert json.loads((here / name / "drw_ring.json").read_text())["sealed"] is not plain


def test_a_token_is_printed_alone_and_is_the_users(story):
    found = drw("ring token ring --user ann --users users.txt")
    assert found.stdout == load_ring().token_for("ann") + "\n" and not found.stderr
    assert load_ring().user_of(json.loads(story["token"].stdout)["token"]) == "ann"


def test_the_key_of_a_user_is_an_ordinary_key(story):
    key = WatermarkKey.from_pretrained("ann-key", passphrase=PASSPHRASE)
    assert key == load_ring().key_for("ann") and json.loads(story["key"].stdout)["commitment"] == key.commitment()
    found = drw("ring key ring --user ann --plain --output handed-over")
    assert found.exit_code == 0 and WatermarkKey.from_pretrained("handed-over") == key


def test_a_proof_convinces_with_the_users_key_and_without_the_ring(story, here):
    proof = UserProof.from_dict(json.loads((here / "found" / "proof.json").read_text()))
    root = json.loads(story["declare"].stdout)["root"]
    assert verify_proof(proof, WatermarkKey.from_pretrained("ann-key", passphrase=PASSPHRASE), root)
    assert not verify_proof(proof, load_ring().key_for("x"), root)


def test_rotate_opens_an_epoch_and_older_ones_can_still_be_proven(story, here):
    ring = new_ring("rotated", *USERS)
    found = drw("ring rotate rotated --json")
    assert found.exit_code == 0 and json.loads(found.stdout)["epoch"] == 1 == load_ring("rotated").epoch
    assert load_ring("rotated").key_for("ann") != ring.key_for("ann") == load_ring("rotated").key_for("ann", 0)
    line = "ring prove rotated --user ann --users users.txt --output old.json"
    assert drw(f"{line} --epoch 0").exit_code == 0
    undeclared = drw(line)
    assert undeclared.exit_code == 1 and "no users were declared in epoch 1" in undeclared.stderr
    assert "ring declare rotated" in drw("ring rotate rotated").stdout


def test_protect_takes_a_ring_and_then_every_question_names_its_user(story, here):
    assert json.loads(story["protect"].stdout)["key_fingerprint"] == load_ring().fingerprint
    assert not any("ring" in path.name or "key" in path.name for path in (here / "served").iterdir())
    found = drw("protect tagger --key ring --output served-again")
    assert found.exit_code == 0 and "key ring" in found.stdout and "user=" in found.stdout


def test_a_ring_goes_to_the_hub_with_its_model_and_is_used_from_there(hub, story, here):
    save_model(here / "classifier", "sequence-classification", seed=1)
    drw("keygen classifier --ring --target positive --output hub-ring")
    ring = load_ring("hub-ring")
    pushed = drw("protect classifier --key hub-ring --push owner/model --json")
    assert pushed.exit_code == 0 and json.loads(hub.files("owner/model")["drw_ring.json"])["sealed"], pushed.output
    assert drw("ring token owner/model --user ann").stdout.strip() == ring.token_for("ann")
    again = drw("protect classifier --key owner/model --output from-the-hub --json")
    assert json.loads(again.stdout)["key_fingerprint"] == ring.fingerprint, again.output
    model = WatermarkedModelForSequenceClassification.from_pretrained("from-the-hub", key=ring)
    assert model.key == ring
    refused = drw("ring rotate owner/model")
    assert refused.exit_code == 2 and "owner/model" in refused.output


# -- identify


def test_the_user_whose_answers_were_stolen_is_named_and_the_exit_code_is_3(story, here):
    found = story["identify"]
    document = json.loads(found.stdout)
    assert found.exit_code == 3 and document["verdict"] == "identified", found.output
    (leaker,) = document["leakers"]
    assert leaker["user"] == "ann" and leaker["declared"] is True and leaker["p_corrected"] < 1e-6
    assert document["committed"] and document["declared_root"] == load_ring().commitment()
    assert document["n_corrected"] == len(USERS) and len(document["ranking"]) == 3
    assert "owner too" in document["not_proven"]
    assert document["files"] == {"finding": "found/identification.json", "plot": "found/users.png"}
    saved = Identification.load(here / "found" / "identification.json")
    assert saved.leakers[0].user == "ann" and len(saved.p_values()) == len(USERS)
    assert (here / "found" / "users.png").stat().st_size > 1000 and (here / "search.db").exists()


def test_what_is_shown_names_users_and_nothing_of_their_keys(story):
    assert not {"settings", "frequency", "target_label"} & set(json.loads(story["identify"].stdout))
    assert "B-PER" not in story["identify"].output


LINE = "identify student probes.jsonl --ring ring --users users.txt --victim served"


def test_people_read_who_it_was_how_sure_it_is_and_what_it_does_not_prove(story):
    found = drw(f"{LINE} --top 2")
    assert found.exit_code == 3, found.output
    first, second, third, fourth, *_ = found.stdout.splitlines()
    assert first.startswith(f"identified: {len(USERS)} users searched")
    assert re.fullmatch(r"  ann \(z [\d.]+, corrected p at most .+\); declared", second)
    assert third.startswith("Not named") and "corrected p" in fourth
    assert "does not prove" in found.stdout and "can make any user's mark" in found.stdout


def test_a_search_goes_on_where_it_stopped_and_refuses_another_one(story):
    again = drw(f"{LINE} --resume search.db --top 3 --json")
    moving = {"created_at", "files"}
    told = [{k: v for k, v in json.loads(one.stdout).items() if k not in moving} for one in (story["identify"], again)]
    assert told[0] == told[1]
    other = drw(f"{LINE} --resume search.db --max-queries 100")
    assert other.exit_code == 1 and "search.db" in other.stderr


def test_an_innocent_model_exits_with_0_and_too_little_with_4(story):
    # Of a given secret: one in twenty others makes somebody look suspicious, which is undecided.
    settings = {"target": "B-PER", "tokenizer": make_tokenizer(), "secret": bytes(range(32))}
    config = AutoConfig.from_pretrained("tagger")
    KeyRing.generate(config, **settings).declare(["x", "ann"]).save_pretrained("known", passphrase=PASSPHRASE)
    line = LINE.replace("student", "innocent").replace("ring ring", "ring known").replace("users.txt", "others.txt")
    innocent = drw(f"{line} --level 0.01")
    assert innocent.exit_code == 0 and innocent.stdout.startswith("nobody"), innocent.output
    assert "does not prove" not in innocent.stdout
    few = drw(LINE.replace("student probes.jsonl", "innocent few.txt") + " --json")
    assert few.exit_code == 4 and json.loads(few.stdout)["verdict"] == "undecided", few.output
    assert json.loads(few.stdout)["leakers"] == []


def test_another_epoch_names_nobody(story):
    ring = load_ring()
    ring.rotate().save_pretrained("later", passphrase=PASSPHRASE)
    line = LINE.replace("--ring ring", "--ring later")
    now, before = drw(f"{line} --json"), drw(f"{line} --epoch 0 --json")
    assert now.exit_code in (0, 4) and json.loads(now.stdout)["leakers"] == [] and json.loads(now.stdout)["epoch"] == 1
    assert before.exit_code == 3 and json.loads(before.stdout)["leakers"][0]["user"] == "ann"
    unknown = drw(f"{line} --epoch 2")
    assert unknown.exit_code == 1 and "epoch=2 does not exist" in unknown.stderr


def test_what_was_not_declared_is_marked(story):
    ring = load_ring()
    bare_ring = KeyRing(ring.template(), secret=ring.secret)
    bare_ring.save_pretrained("undeclared", passphrase=PASSPHRASE)
    nobody_declared = drw(LINE.replace("--ring ring", "--ring undeclared"))
    assert nobody_declared.exit_code == 3 and "); not declared" in nobody_declared.stdout
    assert "No users were declared beforehand" in nobody_declared.stdout

    bare_ring.declare(["x", "y"]).save_pretrained("undeclared", passphrase=PASSPHRASE)
    Path("xy.txt").write_text("x\ny\n")
    line = LINE.replace("--ring ring", "--ring undeclared")
    assert "whether declared is unknown, see --declared-users" in drw(line).stdout
    known = drw(f"{line} --declared-users xy.txt")
    assert "); NOT declared" in known.stdout and known.exit_code == 3
    as_json = json.loads(drw(f"{line} --declared-users xy.txt --json").stdout)
    assert as_json["leakers"][0]["declared"] is False and as_json["committed"] is False


def test_fewer_users_searched_are_corrected_for_all_that_were_declared(story):
    found = json.loads(drw(LINE.replace("users.txt", "others.txt") + " --json").stdout)
    assert found["n_users"] == 2 and found["n_corrected"] == len(USERS)


def test_what_was_tried_counts(story):
    once = json.loads(drw(f"{LINE} --max-queries 250 --json").stdout)
    often = json.loads(drw(f"{LINE} --max-queries 250 --suspects-tested 5 --looks 2 --json").stdout)
    told = [document["leakers"][0]["log10_corrected"] for document in (once, often)]
    assert told[1] == pytest.approx(told[0] + 1, abs=0.01)


def test_without_a_victim_the_tokenizer_is_enough(story):
    found = drw(LINE.replace("--victim served", "--tokenizer tagger --json"))
    assert found.exit_code in (0, 3, 4), found.output  # the test is blunter so
    with_victim, blunter = json.loads(story["identify"].stdout)["variant"], json.loads(found.stdout)["variant"]
    assert "victim" in with_victim and "victim" not in blunter


def test_a_name_cannot_steer_the_terminal():
    assert printable("bœb \N{ROBOT FACE}\nann\x1b[31m\x85") == "bœb \N{ROBOT FACE}�ann�[31m�"


# -- secrets


def test_no_secret_of_the_ring_or_of_a_user_is_anywhere_but_in_its_file(story, here):
    ring = load_ring()
    texts = [drw(f"{LINE} --top 3"), drw("ring token ring --user ann"), drw("ring declare ring --users users.txt")]
    contents = [(command, found.output.encode()) for command, found in story.items()]
    contents += [(str(number), found.output.encode()) for number, found in enumerate(texts)]
    for folder in ("ring", "ann-key", "served", "answers", "student", "found", "cache"):
        contents += [(str(path), path.read_bytes()) for path in (here / folder).rglob("*") if path.is_file()]
    assert len(contents) > 20
    for key in (ring.template(), ring.key_for("ann"), ring.key_for("customer-1")):
        assert leaks_in(key, contents) == []
    master = [ring.secret, ring.secret.hex().encode(), base64.b64encode(ring.secret)[:-2]]
    for where, content in contents:
        assert PASSPHRASE.encode() not in content and not any(form in content for form in master), where


def test_a_rings_passphrase_is_read_from_a_file_and_a_wrong_one_is_not_repeated(story):
    for line in ("ring token ring --user ann", LINE):
        assert drw(f"{line} --passphrase-file passphrase", env=without()).exit_code in (0, 3)
        refused = drw(line, env=without())
        assert refused.exit_code == 1 and "the key ring in ring is sealed" in refused.stderr
        wrong = drw(f"{line} --json", env={passphrases.VARIABLE: "open sesame"})
        assert wrong.exit_code == 1 and "did not open" in wrong.stderr and "sesame" not in wrong.output
        assert not wrong.stdout


def test_a_ring_is_not_made_plain_for_lack_of_a_passphrase(here):
    refused = drw("keygen tagger --ring --target B-PER --output unsealed", env=without())
    assert refused.exit_code == 1 and "--plain" in refused.stderr and not (here / "unsealed").exists()


# -- what goes wrong


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (LINE.replace("users.txt", "twice.txt"), ["'ann'", "twice"]),
        (LINE.replace("users.txt", "empty.txt"), ["empty.txt names no users"]),
        (LINE.replace("users.txt", "blank.txt"), ["blank.txt names no users"]),
        (LINE.replace("--ring ring", "--ring ann-key"), ["holds a key, where a key ring was expected"]),
        (LINE.replace("--ring ring", "--ring nowhere/at/all"), ["nowhere/at"]),
        (LINE.replace("probes.jsonl", "missing.jsonl"), ["missing.jsonl", "no file"]),
        ("ring declare ring --users twice.txt", ["'ann'", "every user once"]),
        ("ring declare ring --users empty.txt", ["empty"]),
        ("ring declare tagger --users users.txt", ["no key ring at"]),
        ("ring token ring --user ''", ["empty string"]),
        ("ring prove ring --user nobody --users users.txt --output new", ["'nobody'", "not among the 62"]),
        ("ring prove ring --user ann --users others.txt --output new", ["the very list"]),
        ("ring key ring --user ann --epoch 3 --output new", ["epoch=3 does not exist"]),
        ("keygen tagger --ring --law paper --target B-PER --output new", ["law='direct'"]),
        ("detect student probes.txt --key ring --victim tagger", ["the key ring", "--user NAME"]),
        ("detect student probes.txt --key ann-key --user ann --victim tagger", ["--user", "a single key"]),
        ("label served queries.jsonl --key ring --output new", ["the key ring", "--user NAME"]),
        ("label tagger queries.jsonl --user ann --output new", ["--user", "--key"]),
        ("label served queries.jsonl --key ring --user ann --epoch 3 --output new", ["epoch=3 does not exist"]),
    ],
)
@pytest.mark.parametrize("options", ["", " --json"])
def test_what_is_wrong_is_said_in_one_message(story, here, line, words, options):
    before = (here / "ring" / "drw_ring.json").read_bytes()
    found = drw(line + options)
    assert found.exit_code == 1 and not found.stdout, found.output
    assert found.stderr.count("Error: ") == 1 and "Traceback" not in found.stderr
    for word in words:
        assert word in found.stderr
    assert not (here / "new").exists() and (here / "ring" / "drw_ring.json").read_bytes() == before


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("ring", "Usage"),
        ("ring token ring", "--user"),
        ("ring declare ring --users missing.txt", "missing.txt"),
        ("ring rotate missing", "missing"),
        ("identify student probes.txt --ring ring --victim tagger", "--users"),
        ("identify student probes.txt --ring ring --users users.txt", "--victim"),
        (f"{LINE} --label-map x", "LABEL_0=negative"),
        (f"{LINE} --top 0", "--top"),
    ],
)
def test_usage_errors_exit_with_2(story, line, word):
    found = drw(line)
    assert found.exit_code == 2 and word in found.output


# -- help and examples


def helps():
    return ["identify --help", *(f"ring {name} --help" for name in RINGS)]


def test_help_imports_none_of_the_libraries_that_commands_need():
    code = (
        f"for line in {['ring --help', *helps()]}:\n    app(line.split(), standalone_mode=False, prog_name='drw-hf')\n"
    )
    code += "print(sorted({'torch', 'transformers', 'datasets', 'numpy', 'matplotlib'} & set(sys.modules)))"
    found = bare(code)
    assert found.stdout.count("Usage: ") == 2 + len(RINGS) and found.stdout.splitlines()[-1] == "[]", found.stderr


def test_every_command_is_listed_and_has_json_and_an_example():
    listed = drw("--help").stdout + drw("ring --help").stdout
    for line in helps():
        text, command = drw(line).stdout, line.removesuffix(" --help")
        assert re.search(rf"^  {command.split()[-1]} ", listed, flags=re.MULTILINE)
        assert "--json" in text and f"Example: drw-hf {command} " in text
    page = PAGE.read_text(encoding="utf-8")
    assert "`drw-hf identify`" in page and "`drw-hf ring`" in page


def test_every_step_of_the_page_and_every_example_runs(tmp_path, monkeypatch):
    """The steps are the numbered ones of the page, whose lines stand apart from the margin."""
    monkeypatch.setenv(passphrases.VARIABLE, PASSPHRASE)
    monkeypatch.setattr(sealing, "COST", 2**4)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    save_model(Path("my-classifier"), "sequence-classification", seed=1)
    for seed, name in enumerate(("queries", "probes")):
        write_rows(Path(name), 200, seed)
    Path("users.txt").write_text("ann\nbob\n")
    steps = re.findall(r"^ +\$ drw-hf (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    examples = re.findall(
        r"^ *Example: drw-hf (.+)$", "".join(drw(line).stdout for line in helps()), flags=re.MULTILINE
    )
    lines = [*steps, *(line.replace("student", "copy") for line in examples if line not in steps)]
    assert len(steps) >= 13 and {" ".join(step.split()[:2]) for step in steps} >= {f"ring {name}" for name in RINGS}
    for line in lines:
        if "--logged" in line:  # a service has run meanwhile
            write_log(KeyRing.from_pretrained("my-ring", passphrase=PASSPHRASE), "my-log")
        found = drw(line)
        expected = {0, 3, 4} if line.startswith(("identify", "detect")) else {0}
        assert found.exit_code in expected, (line, found.output, found.exception)
        assert PASSPHRASE not in found.output


# -- tilt


def test_a_ring_of_tilt_is_searched_in_the_same_way(story, here):
    config = AutoConfig.from_pretrained("tagger")
    ring = KeyRing.generate(config, tokenizer=make_tokenizer(), mark="tilt", strength=0.4, temperature=1.2)
    ring.declare(USERS).save_pretrained("tilt-ring", passphrase=PASSPHRASE)
    line = (
        "identify student probes.jsonl --ring tilt-ring --users users.txt --victim tagger --reference innocent --json"
    )
    found = drw(line)
    document = json.loads(found.stdout)
    assert document["statistic"] == "drw-tilt-1" and document["variant"] == "probabilities-victim-reference"
    assert document["leakers"] == [] and found.exit_code in (0, 4) and document["n_declared"] == len(USERS)
