"""Commitments on the Hub: published once, found again at their first commit, their dates taken for what they are."""

import json
import logging
import sys
from datetime import UTC, datetime, timedelta

import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import EntryNotFoundError

from drw_hf.errors import EvidenceError, HubError, InvalidInputError, RepositoryAccessError, TimestampError
from drw_hf.evidence.commitments import (
    CommitmentRecord,
    NotCommitted,
    commitment_files,
    missing_files,
    publish_commitment,
    verify_commitment,
)
from drw_hf.evidence.timestamps import request_timestamp
from drw_hf.repositories.requests import hub_errors
from local_tsa import LocalTSA
from needles import leaks_in
from small_models import make_key, make_model

REPO = "owner/commitments"
DAY = timedelta(days=1)
START = datetime(2024, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def key():
    return make_key(make_model())


@pytest.fixture(scope="module")
def other_key():
    return make_key(make_model(), secret=bytes(range(32, 64)))


@pytest.fixture
def api(hub):
    """The owner's client; a commit a day from 2024-03-01 on."""
    days = iter(range(10_000))
    hub.clock = lambda: START + next(days) * DAY
    return HfApi()


def push(api, files, repo_id=REPO):
    api.create_repo(repo_id, exist_ok=True)
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    return api.create_commit(repo_id, operations, commit_message="files").oid


def text_of(key):
    return f"drw_commitments/{key.fingerprint}.txt"


def stamp_of(key):
    return f"drw_commitments/{key.fingerprint}.tsr"


# -- publishing


def test_a_commitment_is_64_digits_in_a_file_named_after_the_first_16(key):
    assert commitment_files(key.commitment()) == {text_of(key): key.commitment().encode()}
    stamped = commitment_files(key.commitment(), b"token")
    assert stamped == {text_of(key): key.commitment().encode(), stamp_of(key): b"token"}


@pytest.mark.parametrize("wrong", ["", "ab", "../" * 21 + "x", "A" * 64, "a" * 63 + "\n", None, 7])
def test_only_a_commitment_is_committed_to(hub, wrong):
    for function in (
        commitment_files,
        lambda it: publish_commitment(it, REPO),
        lambda it: verify_commitment(it, REPO),
    ):
        with pytest.raises(InvalidInputError, match="64 lower-case hexadecimal digits"):
            function(wrong)
    assert not hub.requests


def test_publishing_makes_a_public_repository_and_one_commit_with_the_stamp(hub, api, key, tsa):
    url = publish_commitment(key, REPO, timestamp_url=tsa.url)
    assert not hub.is_private(REPO)
    newest, initial = hub.commits(REPO)
    assert url == f"{hub.url}/{REPO}/commit/{newest.sha}"
    assert set(newest.files) - set(initial.files) == {text_of(key), stamp_of(key)}
    record = verify_commitment(key, REPO, trusted_roots=[tsa.root])
    assert (record.commit, record.path, record.timestamp_status) == (newest.sha, text_of(key), "verified")


def test_publishing_again_changes_nothing_but_adds_a_stamp_that_is_missing(hub, api, key, tsa):
    first = publish_commitment(key, REPO)
    assert publish_commitment(key.commitment(), REPO) == first
    stamped = publish_commitment(key, REPO, timestamp_url=tsa.url)
    token = hub.files(REPO)[stamp_of(key)]
    tsa.requests.clear()
    assert publish_commitment(key, REPO, timestamp_url=tsa.url) == publish_commitment(key, REPO) == stamped != first
    assert hub.files(REPO)[stamp_of(key)] == token and not tsa.requests
    assert len(hub.commits(REPO)) == 3


def test_nothing_of_the_key_but_its_commitment_reaches_the_server(hub, api, key, tsa):
    tsa.requests.clear()
    publish_commitment(key, REPO, timestamp_url=tsa.url)
    verify_commitment(key, REPO, trusted_roots=[tsa.root])
    assert any(key.commitment().encode() in content for _, content in hub.everything())
    assert leaks_in(key, hub.everything()) == []
    assert leaks_in(key, (("time stamp", query) for _, query in tsa.requests)) == []


def test_a_bare_name_is_the_owners_own(hub, api, key):
    publish_commitment(key, "commitments")
    assert text_of(key) in hub.files(REPO)


def test_private_is_as_asked_and_a_hidden_commitment_is_warned_of(hub, api, key, other_key, caplog):
    publish_commitment(key, REPO, private=True)
    assert hub.is_private(REPO) and not caplog.records
    with caplog.at_level(logging.WARNING):
        publish_commitment(other_key, REPO)
    assert "owner/commitments is private" in caplog.text and hub.is_private(REPO)


def test_two_keys_live_in_one_repository(hub, api, key, other_key, tsa):
    publish_commitment(key, REPO, timestamp_url=tsa.url)
    publish_commitment(other_key, REPO)
    assert set(hub.files(REPO)) >= {text_of(key), stamp_of(key), text_of(other_key)}
    first, second = (verify_commitment(each, REPO, trusted_roots=[tsa.root]) for each in (key, other_key))
    assert (first.timestamp_status, second.timestamp_status) == ("verified", "absent")
    assert first.date < second.date


def test_what_holds_something_else_is_not_overwritten(hub, api, key, other_key, tsa):
    push(api, {text_of(key): b"something else"})
    with pytest.raises(HubError, match=r"\.txt in owner/commitments is not the commitment .* nothing is overwritten"):
        publish_commitment(key, REPO)
    push(api, {stamp_of(other_key): request_timestamp(key.commitment(), tsa.url)})
    with pytest.raises(HubError, match=r"\.tsr in owner/commitments is not a time stamp of the commitment"):
        publish_commitment(other_key, REPO, timestamp_url=tsa.url)
    assert hub.files(REPO)[text_of(key)] == b"something else" and text_of(other_key) not in hub.files(REPO)


def test_a_stamp_that_is_refused_leaves_no_repository(hub, api, key, tsa):
    tsa.fault = "refuses"
    with pytest.raises(TimestampError, match="did not grant"):
        publish_commitment(key, REPO, timestamp_url=tsa.url)
    assert not hub.repo_exists(REPO)


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500, "path": "/preupload/", "times": 99},
        {"status": 500, "path": "/commit/", "times": 99},
        {"status": 507, "path": "/commit/", "times": 99},
        {"cut_after": 40, "path": "/commit/", "times": 99},
        {"status": 429, "retry_after": 1, "path": "/commit/", "times": 99},
    ],
    ids=lambda fault: "-".join(str(value) for value in fault.values()),
)
def test_an_interrupted_publication_leaves_the_repository_as_it_was(hub, api, key, other_key, fault):
    publish_commitment(other_key, REPO)
    before = hub.commits(REPO)
    hub.fail(**fault)
    with pytest.raises(HubError, match="publishing in owner/commitments failed"):
        publish_commitment(key, REPO)
    assert hub.commits(REPO) == before
    hub.faults.clear()
    publish_commitment(key, REPO)
    assert len(hub.commits(REPO)) == len(before) + 1


def test_a_publication_whose_answer_was_lost_can_be_repeated(hub, api, key):
    publish_commitment(key, "owner/elsewhere")
    hub.fail(lose_answer=True, method="POST", path="owner/commitments/commit/")
    with pytest.raises(HubError):
        publish_commitment(key, REPO)
    publish_commitment(key, REPO)
    assert len(hub.commits(REPO)) == 2


# -- finding it again


def test_the_first_commit_that_carries_it_is_found_with_its_date(hub, api, key):
    push(api, {"README.md": b"# hello"})
    publish_commitment(key, REPO)
    for step in range(3):
        push(api, {"weights.txt": str(step).encode(), "README.md": b"committed: " + key.commitment().encode()})
    record = verify_commitment(key, REPO)
    carrier = hub.commits(REPO)[3]
    assert (record.commit, record.date, record.path) == (carrier.sha, carrier.date, text_of(key))
    assert (record.commitment, record.repo_id, record.repo_type) == (key.commitment(), REPO, "model")
    assert record.timestamp_status == "absent" and record.timestamp is None
    assert record.claimed_date == carrier.date and record.proven_date is None
    assert "is the owner's word" in record.explanation and "history can be rewritten" in record.explanation
    assert "No time stamp" in record.explanation


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("config.json", '{"model_type": "drw", "key_commitment": "%s"}'),
        ("checkpoint-10/config.json", '{"key_commitment": "%s"}'),
        ("drw_key.json", '{"format": "drw-hf-key", "sealed": true, "commitment": "%s"}'),
        ("drw_key_pointer.json", '{"repo_id": "owner/key", "commitment": "%s"}'),
        ("README.md", "---\nlicense: mit\n---\nThe key: `%s`."),
        ("drw_commitments/{fingerprint}.txt", "%s\n"),
    ],
)
def test_it_may_stand_wherever_we_write_it(hub, api, key, path, content):
    path = path.format(fingerprint=key.fingerprint)
    sha = push(api, {path: (content % key.commitment()).encode()})
    push(api, {path: b"gone"})
    record = verify_commitment(key, REPO)
    assert (record.commit, record.path) == (sha, path)


def test_what_only_looks_like_it_is_passed_over(hub, api, key, other_key):
    digits = key.commitment()
    push(
        api,
        {
            "config.json": b"{ not json " + digits.encode(),
            "a/config.json": json.dumps({"another": digits}).encode(),
            "b/config.json": json.dumps([digits]).encode(),
            "notes.txt": digits.encode(),
            text_of(key): digits[:63].encode(),
            "README.md": other_key.commitment().encode(),
        },
    )
    with pytest.raises(NotCommitted, match=f"no revision of {REPO} carries the commitment {key.fingerprint}"):
        verify_commitment(key, REPO)


def test_a_commitment_found_nowhere_is_an_error_that_says_what_to_do(hub, api, key):
    push(api, {"README.md": b"nothing"})
    with pytest.raises(HubError, match=r"publish_commitment before .* marked as uncommitted"):
        verify_commitment(key, REPO)


def test_each_content_is_fetched_once_and_only_what_may_carry_it(hub, api, key):
    for step in range(4):
        push(api, {"README.md": b"same", "config.json": b"{}", "model.txt": str(step).encode()})
    push(api, {"README.md": key.commitment().encode()})
    hub.requests.clear()
    verify_commitment(key, REPO)
    fetched = [request.path for request in hub.requests if "/resolve/" in request.path]
    assert sorted(path.rsplit("/", 1)[1] for path in fetched) == ["README.md", "README.md", "config.json"]


def test_the_walk_ends_where_the_commitment_is_found(hub, api, key, tsa):
    publish_commitment(key, REPO, timestamp_url=tsa.url)
    for step in range(5):
        push(api, {"model.txt": str(step).encode()})
    hub.requests.clear()
    verify_commitment(key, REPO, trusted_roots=[tsa.root])
    assert sum("/tree/" in request.path for request in hub.requests) == 2  # the initial commit and the next


def test_a_long_history_comes_in_pages(hub, api, key):
    hub.page_size = 3
    publish_commitment(key, REPO)
    for step in range(8):
        push(api, {"model.txt": str(step).encode()})
    assert verify_commitment(key, REPO).commit == hub.commits(REPO)[-2].sha


def test_a_revision_and_a_dataset_can_be_asked(hub, api, key):
    api.create_repo(REPO)
    api.create_branch(REPO, branch="keys")
    publish_commitment(key, REPO, revision="keys")
    with pytest.raises(NotCommitted):
        verify_commitment(key, REPO)
    assert verify_commitment(key, REPO, revision="keys").path == text_of(key)
    with pytest.raises(HubError, match="does not have the revision 'absent'"):
        verify_commitment(key, REPO, revision="absent")
    api.create_repo("owner/data", repo_type="dataset")
    api.upload_file(
        path_or_fileobj=key.commitment().encode(), path_in_repo="README.md", repo_id="owner/data", repo_type="dataset"
    )
    assert verify_commitment(key, "owner/data", repo_type="dataset").repo_type == "dataset"


# -- what the date is worth


def test_a_squashed_history_moves_the_date_and_the_stamp_survives(hub, api, key, tsa):
    publish_commitment(key, REPO, timestamp_url=tsa.url)
    push(api, {"model.txt": b"1"})
    before = verify_commitment(key, REPO, trusted_roots=[tsa.root])
    api.super_squash_history(REPO)
    after = verify_commitment(key, REPO, trusted_roots=[tsa.root])
    assert after.date > before.date and after.commit != before.commit
    assert after.timestamp == before.timestamp and after.proven_date == before.proven_date is not None


def test_a_date_that_was_set_at_will_is_told_apart_from_a_proven_one(hub, api, key, tsa):
    hub.clock = lambda: datetime(1999, 1, 1, tzinfo=UTC)
    publish_commitment(key, REPO, timestamp_url=tsa.url)
    record = verify_commitment(key, REPO, trusted_roots=[tsa.root])
    assert record.claimed_date.year == 1999
    assert abs(record.proven_date - datetime.now(UTC)) < timedelta(minutes=5)
    assert "O=Loopback,CN=Local TSA stamped it on " in record.explanation
    assert "The commit's own date, 1999-01-01 00:00:00 UTC, is the owner's word" in record.explanation


def test_a_stamp_that_nobody_asked_to_verify_proves_nothing(hub, api, key, tsa):
    publish_commitment(key, REPO, timestamp_url=tsa.url)
    record = verify_commitment(key, REPO)
    assert (record.timestamp_status, record.timestamp, record.proven_date) == ("not checked", None, None)
    assert "give trusted_roots=" in record.explanation and "is the owner's word" in record.explanation


def test_a_stamp_of_another_root_is_invalid(hub, api, key, tsa, tmp_path):
    publish_commitment(key, REPO, timestamp_url=tsa.url)
    record = verify_commitment(key, REPO, trusted_roots=[LocalTSA(tmp_path / "other").root])
    assert (record.timestamp_status, record.proven_date) == ("invalid", None)
    assert "does not lead to a trusted root" in record.timestamp_problem
    assert record.timestamp_problem in record.explanation


def test_a_stamp_of_another_commitment_is_invalid(hub, api, key, other_key, tsa):
    stranger = request_timestamp(other_key.commitment(), tsa.url)
    push(api, commitment_files(key.commitment(), stranger))
    record = verify_commitment(key, REPO, trusted_roots=[tsa.root])
    assert record.timestamp_status == "invalid" and "of something else" in record.timestamp_problem


def test_a_tampered_stamp_is_invalid(hub, api, key, tsa):
    token = bytearray(request_timestamp(key.commitment(), tsa.url))
    token[-1] ^= 1
    push(api, commitment_files(key.commitment(), bytes(token)))
    record = verify_commitment(key, REPO, trusted_roots=[tsa.root])
    assert record.timestamp_status == "invalid" and "does not verify" in record.timestamp_problem


def test_a_stamp_may_come_later_and_one_that_was_deleted_or_replaced_still_counts(hub, api, key, tsa):
    carrier = push(api, commitment_files(key.commitment()))
    token = request_timestamp(key.commitment(), tsa.url)
    push(api, {stamp_of(key): token})
    push(api, {stamp_of(key): b"vandalised"})
    replaced = verify_commitment(key, REPO, trusted_roots=[tsa.root])
    api.delete_file(stamp_of(key), REPO)
    deleted = verify_commitment(key, REPO, trusted_roots=[tsa.root])
    assert replaced == deleted
    assert (deleted.commit, deleted.timestamp_status) == (carrier, "verified")


def test_roots_that_cannot_be_read_are_an_error_and_not_an_invalid_stamp(hub, api, key, tsa, tmp_path):
    publish_commitment(key, REPO, timestamp_url=tsa.url)
    with pytest.raises(TimestampError, match="cannot be read"):
        verify_commitment(key, REPO, trusted_roots=[tmp_path / "absent.pem"])


def test_a_record_survives_json_and_a_damaged_one_is_refused(hub, api, key, tsa):
    publish_commitment(key, REPO, timestamp_url=tsa.url)
    for roots in ([tsa.root], []):
        record = verify_commitment(key, REPO, trusted_roots=roots)
        fields = json.loads(json.dumps(record.to_dict()))
        assert CommitmentRecord.from_dict(fields) == record
        assert fields["explanation"] == record.explanation
    for damage in (
        {"date": "yesterday"},
        {"timestamp": 3},
        {"timestamp_status": "verified"},
        {"timestamp_status": "?"},
    ):
        with pytest.raises(EvidenceError):
            CommitmentRecord.from_dict({**fields, **damage})
    for nothing in ({}, None, []):
        with pytest.raises(EvidenceError, match="verify_commitment"):
            CommitmentRecord.from_dict(nothing)


# -- who may


def test_a_missing_repository_is_named(hub, api, key):
    with pytest.raises(RepositoryAccessError, match="reading owner/absent failed: there is no such repository"):
        verify_commitment(key, "owner/absent")
    with pytest.raises(HubError, match="cannot be the name of a repository"):
        verify_commitment(key, "not a/name")


def test_a_private_repository_opens_only_to_those_who_may(hub, api, key):
    publish_commitment(key, REPO, private=True)
    assert verify_commitment(key, REPO).repo_id == REPO
    stranger = hub.token("stranger")
    with pytest.raises(RepositoryAccessError, match="the token that was sent does not open it") as caught:
        verify_commitment(key, REPO, token=stranger)
    assert stranger not in str(caught.value)
    with pytest.raises(RepositoryAccessError, match=r"no token was sent; .*hf auth login"):
        verify_commitment(key, REPO, token=False)


@pytest.mark.parametrize("who", ["stranger", "nobody", "impostor"])
def test_only_the_owner_publishes(hub, api, key, other_key, who):
    publish_commitment(key, REPO)
    token = {"stranger": hub.token("stranger"), "nobody": False, "impostor": "hf_" + "0" * 34}[who]
    for repo_id in (REPO, "owner/new"):
        with pytest.raises(RepositoryAccessError, match="hf auth login"):
            publish_commitment(other_key, repo_id, token=token)
    assert text_of(other_key) not in hub.files(REPO) and not hub.repo_exists("owner/new")


# -- what goes wrong between us and the Hub


def chain_of(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_an_error_keeps_neither_the_token_nor_the_frames_behind_it(hub, api, key):
    publish_commitment(key, REPO, private=True)
    token = hub.token("stranger")
    with pytest.raises(RepositoryAccessError) as caught, hub_errors(REPO):
        HfApi(token=token).list_repo_commits(REPO)
    for error in chain_of(caught.value):
        assert token not in repr(vars(error)) and token not in str(error)
        if error is not caught.value:
            assert error.__traceback__ is None
            assert "authorization" not in error.response.request.headers


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"status": 500}, "status 500.*a problem of its own"),
        ({"status": 429, "retry_after": 7}, "status 429.*in 7 seconds"),
        ({"status": 403}, "status 403.*the token that was sent"),
        ({"status": 412}, "status 412.*somebody else changed"),
        ({"status": 418}, "status 418.*did not accept"),
        ({"cut_after": 0}, "the connection could not be made or broke"),
    ],
)
def test_what_the_hub_answers_is_told_with_what_to_do(hub, api, fault, words):
    hub.fail(**fault, times=99)
    with pytest.raises(HubError, match=f"pushing to {REPO} failed.*{words}"), hub_errors(REPO, "pushing to"):
        api.repo_info(REPO)


def test_offline_is_said_plainly_and_a_missing_file_passes_through(hub, api):
    push(api, {"README.md": b"here"})
    with pytest.raises(EntryNotFoundError), hub_errors(REPO):
        api.hf_hub_download(REPO, "absent.txt")
    with hub.offline():
        with pytest.raises(HubError, match="offline mode is on"), hub_errors(REPO):
            api.repo_info(REPO)
        with pytest.raises(HubError, match=r"offline mode is on|local cache does not hold"), hub_errors(REPO):
            api.hf_hub_download(REPO, "other.txt")


def test_a_server_that_is_gone_and_a_login_that_is_missing_are_told_apart(hub, api, monkeypatch):
    with pytest.raises(HubError, match="the connection could not be made"), hub_errors(REPO):
        HfApi(endpoint="http://127.0.0.1:9").repo_info(REPO)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(RepositoryAccessError, match="needs a token and none was found; log in"), hub_errors(REPO):
        api.repo_info(REPO, token=True)


def test_our_own_errors_and_strangers_pass_unchanged():
    for error in (TimestampError("ours"), ZeroDivisionError("theirs")):
        with pytest.raises(type(error)) as caught, hub_errors(REPO):
            raise error
        assert caught.value is error


def test_a_stamp_that_was_asked_for_is_never_taken_for_there_unread(monkeypatch):
    """Without the package that reads stamps, whoever asked for one must hear of it; the others lose nothing."""
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    digits = "a" * 64
    there = commitment_files(digits, b"<html>404</html>")
    assert missing_files(digits, REPO, there.get) == {}
    with pytest.raises(TimestampError, match="rfc3161-client"):
        missing_files(digits, REPO, there.get, "https://tsa.example")
