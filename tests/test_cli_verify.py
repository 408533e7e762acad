"""drw-hf verify: exit codes, what is printed where, and passphrases that nobody sees."""

import contextlib
import json
import os
import subprocess
import sys
import sysconfig
from datetime import UTC, datetime
from pathlib import Path

import huggingface_hub
import pytest
from typer.testing import CliRunner

from drw_hf import detect
from drw_hf.cli import passphrases
from drw_hf.cli.main import app
from drw_hf.cli.passphrases import open_key, read_passphrase
from drw_hf.errors import KeyFileError, WrongPassphraseError
from drw_hf.evidence.commitments import commitment_files
from drw_hf.evidence.timestamps import request_timestamp
from local_tsa import LocalTSA
from small_models import make_special_tokenizer
from test_detect import make_case, make_key

PASSPHRASE = "nine purple lanterns ünder the quay"


@pytest.fixture(autouse=True)
def no_passphrase_around(monkeypatch):
    monkeypatch.delenv(passphrases.VARIABLE, raising=False)


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.fixture(scope="module")
def evidence(key, tmp_path_factory):
    rows, clean, marked, _ = make_case(key, n_rows=60)
    path = tmp_path_factory.mktemp("evidence") / "evidence.json"
    detect(marked, rows, key=key, victim=clean, suspect_first_seen="2026-04-01").save(path)
    return path


@pytest.fixture
def plain(key, tmp_path):
    key.save_pretrained(tmp_path / "plain")
    return tmp_path / "plain"


@pytest.fixture
def sealed(key, tmp_path):
    key.save_pretrained(tmp_path / "sealed", passphrase=PASSPHRASE)
    return tmp_path / "sealed"


def verify(*arguments, **options):
    return CliRunner().invoke(app, ["verify", *map(str, arguments)], **options)


# -- what it says


def test_a_claim_that_holds_exits_with_0(hub, key, plain, evidence, tmp_path):
    with LocalTSA(tmp_path / "tsa").running() as tsa:
        tsa.time = "20260301120000"
        stamp = request_timestamp(key.commitment(), tsa.url)
    hub.clock = lambda: datetime(2026, 3, 1, tzinfo=UTC)
    api = huggingface_hub.HfApi()
    api.create_repo("owner/model")
    operations = [
        huggingface_hub.CommitOperationAdd(path, content)
        for path, content in commitment_files(key.commitment(), stamp).items()
    ]
    api.create_commit("owner/model", operations, commit_message="Commit to a key")
    make_special_tokenizer().save_pretrained(tmp_path / "tokenizer")
    given = (evidence, "--key", plain, "--repo", "owner/model", "--trusted-root", tsa.root)
    given += ("--tokenizer", tmp_path / "tokenizer")
    found = verify(*given)
    assert found.exit_code == 0, found.output
    assert found.stdout.count("✓") == 9 and "All 9 checks passed" in found.stdout
    contradicted = verify(*given, "--suspect-first-seen", "2026-05-01")
    assert contradicted.exit_code == 1 and "✗" in contradicted.stdout


def test_what_could_not_be_decided_exits_with_4(plain, evidence):
    found = verify(evidence, "--key", plain)
    assert found.exit_code == 4 and "could not be decided" in found.stdout and found.stdout.count("?") == 2


def test_a_check_that_failed_exits_with_1(plain, evidence, tmp_path):
    document = {**json.loads(evidence.read_text()), "verdict": "not detected"}
    (tmp_path / "altered.json").write_text(json.dumps(document))
    (tmp_path / "altered.probe.npz").write_bytes(evidence.with_name("evidence.probe.npz").read_bytes())
    found = verify(tmp_path / "altered.json", "--key", plain)
    assert found.exit_code == 1 and "✗" in found.stdout and "do not rely" in found.stdout


def test_json_is_one_document_and_nothing_else(plain, evidence):
    found = verify(evidence, "--key", plain, "--json")
    document = json.loads(found.stdout)
    assert found.exit_code == 4 and not found.stderr and document["holds"] is False
    assert [check["status"] for check in document["checks"]] == ["passed"] * 6 + ["open"] * 2


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_our_errors_are_one_message_without_a_traceback(options, plain, evidence, tmp_path):
    missing = verify(tmp_path / "missing.json", "--key", plain, *options)
    keyless = verify(evidence, "--key", tmp_path, *options)
    (tmp_path / "bad.pem").write_text("no certificate")
    rootless = verify(
        evidence, "--key", plain, "--repo", "owner/model", "--trusted-root", tmp_path / "bad.pem", *options
    )
    for found in (missing, keyless, rootless):
        assert found.exit_code == 1 and not found.stdout
        assert found.stderr.startswith("Error: ") and "Traceback" not in found.stderr
    assert "missing.json" in missing.stderr and "bad.pem" in rootless.stderr


def test_usage_errors_exit_with_2(plain, evidence, tmp_path):
    for wrong in (
        (),
        (evidence,),
        (evidence, "--key", plain, "--suspect-first-seen", "some day"),
        (evidence, "--key", plain, "--trusted-root", tmp_path / "missing.pem"),
        (evidence, "--key", plain, "--passphrase-file", tmp_path / "missing"),
        (evidence, "--key", plain, "--passphrase", "open sesame"),
    ):
        assert verify(*wrong).exit_code == 2, wrong


def test_help_teaches():
    text = verify("--help").output
    assert "Example: drw-hf verify evidence.json" in text
    for word in ("--key", "--repo", "--trusted-root", "--suspect-first-seen", "--passphrase-file", "--json"):
        assert word in text


# -- passphrases


def test_the_passphrase_comes_from_a_file_or_the_environment(sealed, evidence, tmp_path, monkeypatch):
    for ending in ("", "\n", "\r\n"):
        (tmp_path / "passphrase").write_bytes((PASSPHRASE + ending).encode())
        assert read_passphrase(tmp_path / "passphrase") == PASSPHRASE
    assert verify(evidence, "--key", sealed, "--passphrase-file", tmp_path / "passphrase").exit_code == 4
    assert read_passphrase(None) is None
    monkeypatch.setenv("DRW_PASSPHRASE", PASSPHRASE)
    assert verify(evidence, "--key", sealed).exit_code == 4
    (tmp_path / "passphrase").write_text("another one")
    refused = verify(evidence, "--key", sealed, "--passphrase-file", tmp_path / "passphrase")
    assert refused.exit_code == 1 and "did not open" in refused.stderr, "the file comes first"


def test_a_passphrase_file_that_holds_none_is_refused(tmp_path):
    for content in (b"", b"\n", b"\xff\xfe"):
        (tmp_path / "passphrase").write_bytes(content)
        with pytest.raises(KeyFileError, match="passphrase"):
            read_passphrase(tmp_path / "passphrase")


def test_without_a_terminal_nobody_is_asked(sealed, plain, key):
    with pytest.raises(WrongPassphraseError, match="--passphrase-file") as refused:
        open_key(str(sealed))
    assert passphrases.VARIABLE in str(refused.value)
    assert open_key(str(plain)) == key, "a plain key needs none"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo-terminal, and /proc for a process's arguments")
def test_a_passphrase_typed_at_a_terminal_is_seen_by_nobody(sealed, evidence, key, tmp_path):
    """The real command, in a process of its own: its arguments while it runs, its output, and what it leaves."""
    import fcntl
    import termios

    before = set(tmp_path.rglob("*"))
    terminal, inside = os.openpty()
    process = subprocess.Popen(
        [Path(sysconfig.get_path("scripts")) / "drw-hf", "verify", evidence, "--key", sealed],
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        stdin=inside,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(inside)
    arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    shown = os.read(terminal, 1000)  # the prompt comes once the echo is off
    os.write(terminal, PASSPHRASE.encode() + b"\n")
    stdout, stderr = process.communicate(timeout=120)
    os.set_blocking(terminal, False)
    with contextlib.suppress(OSError):
        shown += os.read(terminal, 1000)
    os.close(terminal)
    assert process.returncode == 4, stderr.decode()
    assert b"verify" in arguments and "✓".encode() in stdout
    assert b"Passphrase" in shown + stderr and b"Passphrase" not in stdout  # where to is for typer to say
    for secret in (PASSPHRASE.encode(), key.secret, key.secret.hex().encode(), repr(key.secret).encode()):
        assert secret not in arguments + shown + stdout + stderr
    assert set(tmp_path.rglob("*")) == before


def test_a_key_may_lie_in_a_folder_of_a_repository(hub, key, evidence):
    key.push_to_hub("owner/keys", subfolder="protected/2026")
    found = verify(evidence, "--key", "owner/keys/protected/2026")
    assert found.exit_code == 4 and "holds no key" not in found.output
    assert verify(evidence, "--key", "owner/keys").exit_code == 1
