"""Key files: written whole or not at all, read back exactly, and loud about damage."""

import json
import logging
import multiprocessing
import os
import stat
import traceback

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drw_hf import WatermarkKey
from drw_hf.errors import DrwError, KeyFileError, WrongPassphraseError
from drw_hf.keys import HashRule, KeyedRule, RarestRule, SecondRule, files, register_hash_rule, sealing
from drw_hf.keys.hash_rules import RULES
from small_models import make_key, make_model, make_victim

PASSPHRASE = "correct horse battery staple"


def array_key(model=None):
    rng = np.random.default_rng(0)
    return WatermarkKey.from_arrays(
        v_k=rng.random(8),
        v_s=rng.random(8),
        M=rng.standard_normal((64, 8)).astype(np.float32),
        config=model or make_model(),
        target=1,
        special_token_ids=[0, 2, 3],
    )


KEYS = {
    "direct": lambda: make_key(make_model(), epsilon=0.123456789, frequency=17.3),
    "paper": lambda: make_key(make_model(), law="paper", dimension=7),
    "arrays": array_key,
    "rarest by frequency": lambda: make_key(make_model(), hash_rule=RarestRule(np.arange(64.0))),
    "keyed": lambda: make_key(make_model(), hash_rule=KeyedRule()),
    "tagger": lambda: make_key(make_model("token-classification"), scope="all"),
}


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_comes_back_as_it_was(tmp_path, kind, passphrase):
    key = KEYS[kind]()
    key.save_pretrained(tmp_path / "key", passphrase=passphrase)
    again = WatermarkKey.from_pretrained(tmp_path / "key", passphrase=passphrase)
    assert again == key and again.secret == key.secret and again.hash_rule == key.hash_rule
    np.testing.assert_array_equal(again.phase_table, key.phase_table)
    names = {path.name for path in (tmp_path / "key").iterdir()}
    has_arrays = kind in ("arrays", "rarest by frequency")
    assert names == {"drw_key.json"} | ({"drw_key.safetensors"} if has_arrays else set())


def test_files_are_readable_by_their_owner_alone(tmp_path):
    array_key().save_pretrained(tmp_path)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_plain_key_that_others_can_read_is_warned_about(tmp_path, caplog):
    KEYS["direct"]().save_pretrained(tmp_path)
    (tmp_path / "drw_key.json").chmod(0o644)
    with caplog.at_level(logging.WARNING):
        WatermarkKey.from_pretrained(tmp_path)
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize("kind", ["direct", "arrays"])
def test_a_sealed_key_shows_nothing_but_its_commitment(tmp_path, kind):
    key = KEYS[kind]()
    key.save_pretrained(tmp_path, passphrase=PASSPHRASE)
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert key.commitment().encode() in content
    assert key.secret.hex().encode() not in content and b"negative" not in content and b"epsilon" not in content
    if kind == "arrays":
        assert key.arrays["M"].tobytes()[:64] not in content and key.arrays["v_k"].tobytes() not in content


def test_sealing_uses_a_strong_scrypt_by_default(tmp_path, monkeypatch):
    monkeypatch.undo()  # the low cost that the other tests run with
    KEYS["direct"]().save_pretrained(tmp_path, passphrase=PASSPHRASE)
    kdf = json.loads((tmp_path / "drw_key.json").read_text())["kdf"]
    assert (kdf["name"], kdf["n"], kdf["r"], kdf["p"]) == ("scrypt", 2**17, 8, 1)


def test_sealing_twice_shares_no_salt_nonce_or_ciphertext(tmp_path):
    sealed = []
    for name in "ab":
        KEYS["direct"]().save_pretrained(tmp_path / name, passphrase=PASSPHRASE)
        sealed.append(json.loads((tmp_path / name / "drw_key.json").read_text()))
    assert sealed[0]["kdf"]["salt"] != sealed[1]["kdf"]["salt"]
    assert sealed[0]["cipher"]["nonce"] != sealed[1]["cipher"]["nonce"]


def test_a_passphrase_typed_in_another_unicode_form_opens(tmp_path):
    key = KEYS["direct"]()
    key.save_pretrained(tmp_path, passphrase="caf\u00e9")
    assert WatermarkKey.from_pretrained(tmp_path, passphrase="cafe\u0301") == key


@pytest.mark.parametrize("wrong", ["wrong", None, PASSPHRASE + " "])
@pytest.mark.parametrize("kind", ["direct", "arrays"])
def test_a_wrong_or_missing_passphrase_says_so(tmp_path, kind, wrong):
    KEYS[kind]().save_pretrained(tmp_path, passphrase=PASSPHRASE)
    with pytest.raises(WrongPassphraseError) as caught:
        WatermarkKey.from_pretrained(tmp_path, passphrase=wrong)
    told = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=False).format())
    assert "passphrase" in str(caught.value) and "horse" not in told


def test_an_empty_passphrase_is_refused_and_nothing_written(tmp_path):
    with pytest.raises(KeyFileError, match="None to save the key plain"):
        KEYS["direct"]().save_pretrained(tmp_path / "key", passphrase="")
    assert not (tmp_path / "key").exists()
    with pytest.raises(KeyFileError, match="str"):
        KEYS["direct"]().save_pretrained(tmp_path / "key", passphrase=b"bytes")
    with pytest.raises(KeyFileError, match="surrogate") as caught:
        KEYS["direct"]().save_pretrained(tmp_path / "key", passphrase="secret \ud800")
    assert caught.value.__context__ is None


# -- damage


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
@pytest.mark.parametrize("kind", ["direct", "arrays"])
def test_no_single_changed_byte_gives_another_key(tmp_path, kind, passphrase):
    """Every byte of every file, each with one bit flipped: a named error, or (in white space) the same key."""
    key = KEYS[kind]()
    key.save_pretrained(tmp_path, passphrase=passphrase)
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        step = max(1, len(content) // 1500)  # the arrays file is large; 1,500 places of it
        for place in range(0, len(content), step):
            damaged = bytearray(content)
            damaged[place] ^= 1 << (place % 8)
            path.write_bytes(damaged)
            try:
                assert WatermarkKey.from_pretrained(tmp_path, passphrase=passphrase) == key
            except DrwError as error:
                assert isinstance(error, KeyFileError)
                assert key.secret.hex() not in str(error)
        path.write_bytes(content)


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
def test_every_truncation_is_refused(tmp_path, passphrase):
    KEYS["direct"]().save_pretrained(tmp_path, passphrase=passphrase)
    path = tmp_path / "drw_key.json"
    content = path.read_bytes()
    for length in range(len(content) - 2):  # the last byte but one closes the document
        path.write_bytes(content[:length])
        with pytest.raises(KeyFileError):
            WatermarkKey.from_pretrained(tmp_path, passphrase=passphrase)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | st.just(b"[" * 100000))
def test_any_other_file_is_refused(tmp_path, content):
    (tmp_path / "drw_key.json").write_bytes(content)
    with pytest.raises(KeyFileError):
        WatermarkKey.from_pretrained(tmp_path)


def altered(tmp_path, change, passphrase=None):
    path = tmp_path / "drw_key.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return pytest.raises(KeyFileError)


def test_a_newer_version_asks_for_an_update(tmp_path):
    KEYS["direct"]().save_pretrained(tmp_path)
    with altered(tmp_path, lambda document: document.update(version=3)) as caught:
        WatermarkKey.from_pretrained(tmp_path)
    assert "update drw_hf" in str(caught.value)


def test_a_header_cannot_make_its_reader_allocate(tmp_path, monkeypatch):
    KEYS["direct"]().save_pretrained(tmp_path, passphrase=PASSPHRASE)
    monkeypatch.setattr(sealing, "Scrypt", lambda **_: pytest.fail("scrypt was run on an unchecked header"))
    for kdf in (
        {"n": 2**21},
        {"n": 2, "r": 2**18, "p": 16},
        {"p": 2},
        {"n": 3},
        {"n": 0},
        {"n": -(2**17)},
        {"n": "16"},
    ):
        with altered(
            tmp_path, lambda document, kdf=kdf: document["kdf"].update(n=2**4, r=8, p=1) or document["kdf"].update(kdf)
        ):
            WatermarkKey.from_pretrained(tmp_path, passphrase=PASSPHRASE)


@pytest.mark.parametrize("name", ["commitment", "version", "sealed"])
def test_the_header_of_a_sealed_key_is_authenticated(tmp_path, name):
    KEYS["direct"]().save_pretrained(tmp_path, passphrase=PASSPHRASE)
    change = {"commitment": "0" * 64, "version": True, "sealed": False}
    with altered(tmp_path, lambda document: document.update({name: change[name]})):
        WatermarkKey.from_pretrained(tmp_path, passphrase=PASSPHRASE)


def test_a_missing_key_and_a_missing_arrays_file_are_named(tmp_path):
    with pytest.raises(KeyFileError, match=r"WatermarkKey\.generate"):
        WatermarkKey.from_pretrained(tmp_path / "nowhere")
    array_key().save_pretrained(tmp_path)
    (tmp_path / "drw_key.safetensors").unlink()
    with pytest.raises(KeyFileError, match="arrays"):
        WatermarkKey.from_pretrained(tmp_path)


def test_arrays_of_another_key_are_refused(tmp_path):
    array_key().save_pretrained(tmp_path / "a")
    other = WatermarkKey.from_arrays(
        v_k=np.ones(8), v_s=np.ones(8), M=np.ones((64, 8)), config=make_model(), target=1, special_token_ids=[0]
    )
    other.save_pretrained(tmp_path / "b")
    os.replace(tmp_path / "b" / "drw_key.safetensors", tmp_path / "a" / "drw_key.safetensors")
    with pytest.raises(KeyFileError):
        WatermarkKey.from_pretrained(tmp_path / "a")


# -- no key is lost


@pytest.mark.parametrize("fault", ["fsync", "replace"])
@pytest.mark.parametrize("kind", ["direct", "arrays"])
def test_a_failed_write_leaves_everything_as_it_was(tmp_path, monkeypatch, kind, fault):
    key = KEYS[kind]()
    key.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, fault, fail)
        with pytest.raises(KeyFileError, match="No space left"):
            key.save_pretrained(tmp_path, passphrase=PASSPHRASE)
        with pytest.raises(KeyFileError, match="No space left"):
            key.save_pretrained(tmp_path / "new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert list((tmp_path / "new").iterdir()) == []
    assert WatermarkKey.from_pretrained(tmp_path) == key


OTHER = "another passphrase"


@pytest.mark.parametrize(
    "passphrases", [(None, PASSPHRASE), (PASSPHRASE, None), (PASSPHRASE, PASSPHRASE), (PASSPHRASE, OTHER)]
)
def test_a_crash_between_the_two_files_of_a_resave_loses_nothing(tmp_path, monkeypatch, passphrases):
    before, after = passphrases
    key = array_key()
    key.save_pretrained(tmp_path, passphrase=before)
    real_replace = os.replace

    def crash_at_the_json(source, target):
        if str(target).endswith(".json"):
            raise KeyboardInterrupt
        real_replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash_at_the_json)
        with pytest.raises(KeyboardInterrupt):
            key.save_pretrained(tmp_path, passphrase=after)
    assert WatermarkKey.from_pretrained(tmp_path, passphrase=before) == key
    assert {path.name for path in tmp_path.iterdir()} == {"drw_key.json", "drw_key.safetensors"}


# -- what a killed process leaves behind


def save_slowly(path, line):
    """Write a plain key's file, say so before it is renamed, and wait until told to go on."""
    real_replace = os.replace

    def wait_and_replace(source, target):
        line.send("written")
        line.recv()
        real_replace(source, target)

    os.replace = wait_and_replace
    files.write_atomically(path, b'{"sealed": false, "key": "the secret"}')


@pytest.fixture
def writer(tmp_path):
    """Another process that is about to rename what it wrote into the folder ``keys``, and the line to it."""
    context = multiprocessing.get_context("fork")
    line, its_line = context.Pipe()
    process = context.Process(target=save_slowly, args=(tmp_path / "keys" / "drw_key.json", its_line))
    process.start()
    assert line.poll(60) and line.recv() == "written"
    yield process, line
    process.kill()
    process.join()


def leftovers(folder):
    return [path for path in folder.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.skipif(os.name != "posix", reason="files are locked as POSIX has it")
def test_what_a_killed_save_left_is_seen_beside_a_model_and_gone_with_the_next_save(tmp_path, writer):
    (process, _), folder = writer, tmp_path / "keys"
    process.kill()
    process.join()
    assert b"the secret" in leftovers(folder)[0].read_bytes()
    for place in (folder, folder / "checkpoint-5", tmp_path):
        with pytest.raises(KeyFileError, match="did not end"):
            make_victim().save_pretrained(place)
    KEYS["direct"]().save_pretrained(folder, passphrase=PASSPHRASE)
    assert leftovers(folder) == []
    make_victim().save_pretrained(folder)


@pytest.mark.skipif(os.name != "posix", reason="files are locked as POSIX has it")
def test_a_temporary_file_that_another_process_is_writing_stays(tmp_path, writer):
    (process, line), folder = writer, tmp_path / "keys"
    KEYS["direct"]().save_pretrained(folder, passphrase=PASSPHRASE)
    assert len(leftovers(folder)) == 1
    with pytest.raises(KeyFileError, match="did not end"):
        make_victim().save_pretrained(folder)
    line.send("go on")
    process.join(60)
    assert process.exitcode == 0 and leftovers(folder) == []
    assert b"the secret" in (folder / "drw_key.json").read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="files are locked as POSIX has it")
def test_a_file_taken_for_a_leftover_before_it_was_locked_is_written_under_another_name(tmp_path, monkeypatch):
    lock, taken = files._lock, []

    def lock_late(descriptor):
        if not taken:
            taken.extend(leftovers(tmp_path))
            taken[0].unlink()
        return lock(descriptor)

    monkeypatch.setattr(files, "_lock", lock_late)
    files.write_atomically(tmp_path / "file", b"content")
    assert len(taken) == 1 and (tmp_path / "file").read_bytes() == b"content" and leftovers(tmp_path) == []


def test_files_that_only_look_alike_are_left_alone(tmp_path):
    names = [".tmp", ".drw_key.json.tmp", ".mine.0123456789abcdef.tmp", "drw_key.json.0123456789abcdef.tmp"]
    for name in names:
        (tmp_path / name).write_text("mine")
    KEYS["direct"]().save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "drw_key.json"}


def test_a_leftover_of_a_sealed_key_may_lie_beside_a_model_if_it_is_whole(tmp_path):
    KEYS["direct"]().save_pretrained(tmp_path, passphrase=PASSPHRASE)
    content = (tmp_path / "drw_key.json").read_bytes()
    left = tmp_path / ".drw_key.json.0123456789abcdef.tmp"
    left.write_bytes(content)
    files.refuse_model_beside_plain_key(tmp_path)
    left.write_bytes(content[:-10])
    with pytest.raises(KeyFileError, match="did not end"):
        files.refuse_model_beside_plain_key(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="anybody may make symbolic links there")
def test_symbolic_links_hide_neither_a_model_nor_a_plain_key(tmp_path):
    model, aside = tmp_path / "out" / "checkpoint-5", tmp_path / "aside"
    model.mkdir(parents=True)
    aside.mkdir()
    (model / "config.json").write_text("{}")
    (tmp_path / "link").symlink_to(model)
    (aside / "to-key").symlink_to(model / "key")
    for place in (tmp_path / "link", tmp_path / "link" / "key", aside / "to-key"):
        with pytest.raises(KeyFileError, match="holds a model"):
            KEYS["direct"]().save_pretrained(place)
    KEYS["direct"]().save_pretrained(aside / "key")
    (model.parent / "within").symlink_to(aside)
    for place in (model.parent, model, tmp_path / "link"):
        with pytest.raises(KeyFileError, match="plain key"):
            files.refuse_model_beside_plain_key(place)


def test_another_key_is_never_replaced(tmp_path):
    first, second = KEYS["direct"](), KEYS["paper"]()
    first.save_pretrained(tmp_path, passphrase=PASSPHRASE)
    for passphrase in (None, PASSPHRASE):
        with pytest.raises(KeyFileError, match="another key"):
            second.save_pretrained(tmp_path, passphrase=passphrase)
    assert WatermarkKey.from_pretrained(tmp_path, passphrase=PASSPHRASE) == first
    first.save_pretrained(tmp_path)  # the same key may change between sealed and plain
    assert WatermarkKey.from_pretrained(tmp_path) == first


@pytest.mark.parametrize("lying_there", ["config.json", "training_args.bin", "checkpoint-5/x", "adapter_config.json"])
def test_a_plain_key_does_not_go_where_a_model_lies(tmp_path, lying_there):
    (tmp_path / lying_there).parent.mkdir(exist_ok=True)
    (tmp_path / lying_there).write_text("{}")
    key = KEYS["direct"]()
    with pytest.raises(KeyFileError, match="passphrase"):
        key.save_pretrained(tmp_path)
    assert not (tmp_path / "drw_key.json").exists()
    key.save_pretrained(tmp_path, passphrase=PASSPHRASE)


def test_nor_into_a_folder_of_a_models_folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(KeyFileError, match="passphrase"):
        KEYS["direct"]().save_pretrained(tmp_path / "key")


def test_a_plain_key_is_not_taken_where_a_sealed_one_was_expected(tmp_path):
    KEYS["direct"]().save_pretrained(tmp_path)
    with pytest.raises(KeyFileError, match="not sealed"):
        WatermarkKey.from_pretrained(tmp_path, passphrase=PASSPHRASE)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/key"):
        with pytest.raises(KeyFileError, match="folder"):
            KEYS["direct"]().save_pretrained(tmp_path / place)


@pytest.mark.parametrize("act", ["save", "load"])
def test_no_frame_of_an_error_holds_the_secret(tmp_path, monkeypatch, act):
    """What an error reporter that shows local variables would show."""
    key = KEYS["arrays"]()
    key.save_pretrained(tmp_path, passphrase=PASSPHRASE)
    with pytest.raises(KeyFileError) as caught:
        if act == "save":
            monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            key.save_pretrained(tmp_path)
        else:
            (tmp_path / "drw_key.safetensors").write_bytes(b"damaged")
            WatermarkKey.from_pretrained(tmp_path, passphrase=PASSPHRASE)
    shown = ""
    frames = caught.value.__traceback__
    while frames is not None:
        if "drw_hf" in frames.tb_frame.f_code.co_filename:
            shown += repr(frames.tb_frame.f_locals)
        frames = frames.tb_next
    assert shown and key.secret.hex() not in shown and repr(key.secret) not in shown


def test_arrays_of_a_key_cannot_be_changed(tmp_path):
    frequencies = np.arange(64.0)
    key = make_key(make_model(), hash_rule=RarestRule(frequencies))
    before = key.rule_scores().tolist()
    frequencies[:] = 1.0
    assert key.rule_scores().tolist() == before
    array_key().save_pretrained(tmp_path)
    for one in (array_key(), WatermarkKey.from_pretrained(tmp_path)):
        with pytest.raises(TypeError):
            one.arrays["M"] = np.zeros((64, 8))
        with pytest.raises(ValueError):
            one.arrays["M"][0, 0] = 1.0


# -- rules of one's own


def test_a_rule_of_ones_own_is_kept_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("drw_hf.keys.hash_rules.RULES", RULES)

    class LastRule(HashRule):
        name = "test-last"

        def choose(self, tokens):
            return tokens.ordinary.int().cumsum(-1).argmax(-1)

    register_hash_rule(LastRule)
    try:
        key = make_key(make_model(), hash_rule=LastRule())
        key.save_pretrained(tmp_path)
        assert isinstance(WatermarkKey.from_pretrained(tmp_path).hash_rule, LastRule)
        with pytest.raises(ValueError, match="choose another name"):
            register_hash_rule(type("Other", (SecondRule,), {"name": "test-last"}))
    finally:
        RULES.remove("test-last")
    with pytest.raises(KeyFileError, match="import the module"):
        WatermarkKey.from_pretrained(tmp_path)
