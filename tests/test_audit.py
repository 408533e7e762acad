"""`audit`: a key that lies open is found wherever in a repository's history it lies.

The Hub is a loopback server; huggingface.co is not contacted.
"""

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from huggingface_hub import HfApi
from typer.testing import CliRunner

from drw_hf.cli.main import app
from drw_hf.errors import HubError, RepositoryAccessError
from drw_hf.hub import audit
from drw_hf.keys import RarestRule, sealing
from small_models import make_key, make_model, make_victim

PASSPHRASE = "correct horse battery staple"
REPO = "owner/model"


def upload(path, content, **options):
    HfApi().upload_file(repo_id=REPO, path_in_repo=path, path_or_fileobj=content, **options)


def plain_file():
    return make_key(make_model()).to_files()["drw_key.json"]


def test_a_plain_key_in_a_private_repository_is_at_risk_and_open_once_it_turns_public(hub):
    victim = make_victim()
    hub.clock = lambda: datetime(2026, 3, 1, 12, tzinfo=UTC)
    victim.push_to_hub(REPO)
    found = audit(REPO)
    assert found.status == "at risk" and found.private and "keep it so" in found.advice
    hub.set_private(REPO, False)
    found = audit(REPO)
    assert found.status == "open" and not found.private and "rotate" in found.advice
    (finding,) = found.findings
    assert (finding.kind, finding.path, finding.current) == ("plain key", "drw_key.json", True)
    assert finding.commit == hub.commits(REPO)[0].sha and finding.fingerprint == victim.key.fingerprint
    assert finding.date == hub.clock() and finding.refs == ("refs/heads/main",)


def test_a_sealed_key_a_pointer_and_a_commitment_are_safe(hub):
    make_victim().push_to_hub(REPO, passphrase=PASSPHRASE)
    assert [finding.kind for finding in audit(REPO).findings] == ["sealed key"]
    make_victim().push_to_hub(REPO, key_repo_id="owner/keys", replace_key=True)
    hub.set_private(REPO, False)
    found = audit(REPO)
    assert found.status == "safe" and "Nothing to do" in found.advice
    assert audit("owner/keys").status == "at risk"


def test_deleting_the_file_is_not_enough_and_squashing_the_history_is_seen(hub):
    make_victim().push_to_hub(REPO)
    HfApi().delete_file("drw_key.json", repo_id=REPO)
    hub.set_private(REPO, False)
    found = audit(REPO)
    assert found.status == "open" and not found.findings[0].current and "history only" in str(found)
    HfApi().super_squash_history(REPO)
    assert audit(REPO).status == "safe"


@pytest.mark.parametrize("where", ["branch", "tag", "pull request"])
def test_other_branches_tags_and_pull_requests_are_looked_at(hub, where):
    api = HfApi()
    api.create_repo(REPO)
    if where == "pull request":
        upload("drw_key.json", plain_file(), create_pr=True)
    else:
        api.create_branch(REPO, branch="side")
        upload("drw_key.json", plain_file(), revision="side")
    if where == "tag":
        api.create_tag(REPO, tag="v1", revision="side")
        api.delete_branch(REPO, branch="side")
    refs = {"branch": "refs/heads/side", "tag": "refs/tags/v1", "pull request": "refs/pr/1"}
    found = audit(REPO)
    assert found.status == "open" and found.findings[0].refs == (refs[where],)


@pytest.mark.parametrize("path", ["renamed.json", "deep/down/drw_key.json", "checkpoint-5/backup.json"])
def test_a_key_under_any_name_is_found(hub, path):
    HfApi().create_repo(REPO)
    upload(path, plain_file())
    assert [(finding.kind, finding.path) for finding in audit(REPO).findings] == [("plain key", path)]


def test_what_else_gives_a_key_away_is_found(hub):
    HfApi().create_repo(REPO)
    upload("tokenizer_config.json", json.dumps({"model_max_length": 64, "passphrase": PASSPHRASE}).encode())
    upload("evidence.json", json.dumps({"format": "drw-evidence-1", "frequency": 16.0}).encode())
    upload("drw_key.json", plain_file()[:100])
    found = audit(REPO)
    assert {finding.kind for finding in found.findings} == {"passphrase", "evidence", "damaged key file"}
    assert found.status == "open" and PASSPHRASE not in str(found) and PASSPHRASE not in json.dumps(found.to_dict())


def test_a_tampered_envelope_does_not_make_a_plain_key_look_sealed(hub):
    HfApi().create_repo(REPO)
    upload("drw_key.json", json.dumps({**json.loads(plain_file()), "sealed": True}).encode())
    assert audit(REPO).status == "open"


@pytest.mark.parametrize(
    "path", ["drw_key.json.bak", "DRW_KEY.JSON", ".drw_key.json.0123456789abcdef.tmp", "old_drw_key.json", "notes.txt"]
)
def test_a_copy_under_a_similar_name_is_found(hub, path):
    HfApi().create_repo(REPO)
    upload(path, plain_file())
    assert audit(REPO).status == "open"


def test_a_key_within_another_document_is_found(hub):
    HfApi().create_repo(REPO)
    document = json.loads(plain_file())
    for path, content in {
        "list.json": [1, {"backup": document}],
        "fields.json": document["key"],
        "settings.json": {"tokenizer": {"passphrase": PASSPHRASE}},
    }.items():
        upload(path, json.dumps(content).encode())
    kinds = {finding.path: finding.kind for finding in audit(REPO).findings}
    assert kinds == {"list.json": "plain key", "fields.json": "plain key", "settings.json": "passphrase"}


def test_the_arrays_of_a_key_are_the_key(hub):
    model = make_model()
    key = make_key(model, hash_rule=RarestRule(np.arange(64.0)))
    HfApi().create_repo(REPO)
    upload("drw_key.safetensors", key.to_files()["drw_key.safetensors"])
    assert audit(REPO).status == "open"
    upload("drw_key.safetensors", key.to_files(passphrase=PASSPHRASE)["drw_key.safetensors"])
    found = {(finding.kind, finding.current) for finding in audit(REPO).findings}
    assert found == {("plain key", False), ("sealed key", True)}


def test_a_key_sealed_too_cheaply_counts_as_open(hub, monkeypatch):
    HfApi().create_repo(REPO)
    monkeypatch.setattr(sealing, "COST", 2**3)
    upload("drw_key.json", make_key(make_model()).to_files(passphrase=PASSPHRASE)["drw_key.json"])
    monkeypatch.setattr(sealing, "COST", 2**4)
    assert [finding.kind for finding in audit(REPO).findings] == ["weakly sealed key"]


def test_a_pointer_to_a_repository_that_turned_public_is_followed(hub):
    make_victim().push_to_hub(REPO, key_repo_id="owner/keys")
    assert audit(REPO).status == "safe"
    hub.set_private(REPO, False)
    hub.set_private("owner/keys", False)
    found = audit(REPO)
    assert found.status == "open" and found.findings[0].path.startswith("owner/keys: ")


def test_what_was_not_looked_into_is_said(hub):
    HfApi().create_repo(REPO)
    upload("backup.zip", b"PK")
    found = audit(REPO)
    assert found.skipped == ("backup.zip",) and "not looked into: backup.zip" in str(found)


def test_a_file_name_cannot_draw_on_the_terminal(hub):
    HfApi().create_repo(REPO)
    upload("a\x1b[2Jdrw_key.json", plain_file())
    assert "\x1b" not in str(audit(REPO))


def test_other_peoples_repositories_are_left_in_peace(hub):
    make_model().push_to_hub(REPO)
    upload("data.json", b"[1, 2, 3]")
    upload("broken.json", b"{")
    found = audit(REPO)
    assert found.status == "safe" and not found.findings and found.n_commits == len(hub.commits(REPO))


def test_data_sets_and_spaces_have_a_past_too(hub):
    HfApi().create_repo(REPO, repo_type="dataset")
    upload("drw_key.json", plain_file(), repo_type="dataset")
    assert audit(REPO, repo_type="dataset").status == "open"


def test_every_content_is_read_once_and_nothing_gets_into_the_cache(hub):
    make_victim().push_to_hub(REPO)
    for number in range(4):
        upload(f"note{number}.txt", b"text")
    hub.requests.clear()
    audit(REPO)
    fetched = [request.path for request in hub.requests if "/resolve/" in request.path]
    assert fetched and len(fetched) == len(set(fetched))
    assert not list(hub.home.rglob("drw_key.json"))


def test_a_repository_that_cannot_be_read_is_an_error_and_no_verdict(hub):
    make_victim().push_to_hub(REPO)
    with pytest.raises(RepositoryAccessError, match=REPO):
        audit(REPO, token=hub.token("stranger"))
    with pytest.raises(RepositoryAccessError, match="owner/nothing"):
        audit("owner/nothing")
    hub.fail(status=500, path="/tree/", times=100)
    with pytest.raises(HubError, match="500"):
        audit(REPO)


# -- the command


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *arguments])


def test_the_command_tells_scripts_by_its_exit_code(hub):
    victim = make_victim()
    victim.push_to_hub(REPO)
    private = run(REPO)
    assert private.exit_code == 0 and "at risk" in private.output
    hub.set_private(REPO, False)
    public = run(REPO)
    assert public.exit_code == 3 and "open" in public.output and "rotate" in public.output
    document = json.loads(run(REPO, "--json").stdout)
    assert document["status"] == "open" and document["findings"][0]["fingerprint"] == victim.key.fingerprint
    assert victim.key.secret.hex() not in public.output + json.dumps(document)
    missing = run("owner/nothing")
    assert missing.exit_code == 1 and "owner/nothing" in missing.output and "Traceback" not in missing.output
    assert run().exit_code == 2
