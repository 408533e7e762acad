"""The real huggingface_hub client gets through what the tests of this package need from a Hub."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import evaluate
import httpx2
import pytest
import torch
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    hf_hub_download,
    snapshot_download,
)
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from drw_hf import metrics
from small_models import make_model

REPO = "owner/model"
WEIGHTS = bytes(range(256)) * 1200
RESOLVE = "/resolve/"


@pytest.fixture
def api(hub):
    return HfApi()


@pytest.fixture
def repo(api):
    """A public repo with one small and one large file."""
    api.create_repo(REPO)
    add(api, {"config.json": b"{}", "model.safetensors": WEIGHTS}, "Add the model")
    return REPO


def add(api, files, message="Add files", **options):
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    return api.create_commit(REPO, operations, commit_message=message, **options)


def read(*args, **options):
    return Path(hf_hub_download(*args, **options)).read_bytes()


def asked(hub, method, ending):
    return [request.status for request in hub.requests if request.method == method and ending in request.path]


def test_the_token_says_who_the_user_is(hub, api):
    assert api.whoami()["name"] == "owner"
    assert api.whoami(token=hub.token("stranger"))["name"] == "stranger"
    with pytest.raises(HfHubHTTPError, match="Invalid"):
        api.whoami(token="hf_nobody")


class TestFiles:
    def test_what_is_uploaded_comes_back(self, hub, api, upload_path, tmp_path):
        folder = tmp_path / "model"
        (folder / "sub").mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(WEIGHTS)
        (folder / "sub" / "notes.txt").write_text("notes")
        api.create_repo(REPO)
        api.upload_folder(repo_id=REPO, folder_path=folder, commit_message="Add a folder")
        api.upload_file(repo_id=REPO, path_or_fileobj=b"more" * 99, path_in_repo="more.bin")

        assert hub.files(REPO)["model.safetensors"] == WEIGHTS
        assert hub.files(REPO)["more.bin"] == b"more" * 99
        assert read(REPO, "model.safetensors") == WEIGHTS
        pulled = Path(snapshot_download(REPO))
        assert (pulled / "sub" / "notes.txt").read_text() == "notes"
        assert (pulled / "more.bin").read_bytes() == b"more" * 99
        by_xet = any("/v1/xorbs/" in request.path for request in hub.requests)
        by_lfs = any("/lfs-upload/" in request.path for request in hub.requests)
        assert (by_xet, by_lfs) == ((True, False) if upload_path == "xet" else (False, True))

    def test_a_large_object_goes_in_parts(self, hub, api):
        hub.multipart_above = 100_000
        api.create_repo(REPO)
        add(api, {"model.safetensors": WEIGHTS})
        assert len(asked(hub, "PUT", "/lfs-upload/")) == 4
        assert read(REPO, "model.safetensors") == WEIGHTS

    def test_the_tree_shows_sizes_and_which_files_are_large(self, api, repo):
        add(api, {"sub/deep/notes.txt": b"notes"})
        tree = {entry.path: entry for entry in api.list_repo_tree(repo, recursive=True, expand=True)}
        assert tree["model.safetensors"].lfs.size == len(WEIGHTS)
        assert tree["config.json"].size == 2 and tree["config.json"].lfs is None
        assert tree["sub/deep"].last_commit.title == "Add files"
        assert {entry.path for entry in api.list_repo_tree(repo)} >= {"sub", "config.json"}
        assert [entry.path for entry in api.list_repo_tree(repo, "sub")] == ["sub/deep"]
        assert [entry.path for entry in api.get_paths_info(repo, ["config.json", "gone"])] == ["config.json"]
        siblings = {file.rfilename: file for file in api.model_info(repo, files_metadata=True).siblings}
        assert siblings["model.safetensors"].size == len(WEIGHTS)

    def test_files_are_deleted_by_a_commit(self, hub, api, repo):
        add(api, {"sub/a.txt": b"a", "sub/b.txt": b"b"})
        deletions = [CommitOperationDelete("sub/", is_folder=True), CommitOperationDelete("config.json")]
        api.create_commit(repo, deletions, commit_message="Delete")
        assert set(hub.files(repo)) == {".gitattributes", "model.safetensors"}
        with pytest.raises(RemoteEntryNotFoundError):
            api.delete_file("gone.txt", repo)

    def test_what_did_not_change_makes_no_commit(self, hub, api, repo):
        before = hub.commits(repo)
        add(api, {"config.json": b"{}", "model.safetensors": WEIGHTS})
        assert hub.commits(repo) == before

    def test_a_cut_download_resumes_where_it_stopped(self, hub, repo):
        hub.fail(cut_after=100_000, method="GET", path=RESOLVE)
        assert read(repo, "model.safetensors") == WEIGHTS
        assert asked(hub, "GET", RESOLVE) == [None, 206]
        assert hub.waits == [1]

    def test_after_one_pull_the_cache_suffices(self, hub, repo, upload_path):
        read(repo, "model.safetensors")
        with hub.offline():
            assert read(repo, "model.safetensors") == WEIGHTS
            with pytest.raises(LocalEntryNotFoundError):
                read(repo, "config.json")

    def test_a_child_process_finds_the_hub(self, hub, repo):
        script = (
            f"from huggingface_hub import hf_hub_download as get; print(open(get({repo!r}, 'config.json')).read())"
        )
        run = [sys.executable, "-c", script]
        child = subprocess.run(run, env=os.environ | hub.environment(), capture_output=True, text=True, check=True)
        assert child.stdout == "{}\n"


class TestPrivacy:
    @pytest.fixture
    def private(self, api):
        api.create_repo(REPO, private=True)
        add(api, {"config.json": b"{}"})
        return REPO

    def test_a_private_repo_is_its_owners_alone(self, hub, api, private):
        assert hub.is_private(private) and api.model_info(private).private
        for token, status in ((False, 401), (hub.token("stranger"), 404)):
            with pytest.raises(RepositoryNotFoundError) as failure:
                api.model_info(private, token=token)
            assert failure.value.response.status_code == status
            with pytest.raises(RepositoryNotFoundError):
                hf_hub_download(private, "config.json", token=token)

    def test_a_missing_repo_looks_the_same(self, hub, api):
        for token, status in ((False, 401), (hub.token("stranger"), 404)):
            with pytest.raises(RepositoryNotFoundError) as failure:
                api.model_info("owner/none", token=token)
            assert failure.value.response.status_code == status
        assert not api.repo_exists("owner/none")

    def test_a_repo_that_turns_public_is_everybodys(self, hub, api, private):
        api.update_repo_settings(private, private=False)
        assert not hub.is_private(private)
        assert read(private, "config.json", token=False) == b"{}"
        hub.set_private(private, True)
        with pytest.raises(RepositoryNotFoundError):
            api.model_info(private, token=False)

    def test_only_the_owner_and_members_write(self, hub, api, repo):
        stranger = HfApi(token=hub.token("stranger"))
        for write in (
            lambda: stranger.create_repo("owner/new"),
            lambda: stranger.delete_repo(repo),
            lambda: stranger.create_tag(repo, tag="v1"),
            lambda: stranger.update_repo_settings(repo, private=True),
            lambda: add(stranger, {"model.bin": b"other"}),
        ):
            with pytest.raises(HfHubHTTPError, match="403"):
                write()
        member = HfApi(token=hub.add_user("member", orgs=["lab"]))
        member.create_repo("lab/model", private=True)
        assert member.model_info("lab/model").private and not api.repo_exists("lab/model")

    def test_a_deleted_repo_is_gone_but_its_bytes_are_on_record(self, hub, api, repo):
        api.delete_repo(repo)
        assert not hub.repo_exists(repo) and not api.repo_exists(repo)
        assert any(content == WEIGHTS for _, content in hub.everything())


class TestHistory:
    def test_commits_carry_titles_and_dates_on_several_pages(self, hub, api):
        dates = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(6)]
        hub.page_size = 4
        hub.clock = iter([dates[0], *dates]).__next__  # a new repo asks twice: for itself and its first commit
        api.create_repo(REPO)
        for number in range(5):
            add(api, {"n.txt": str(number).encode()}, f"Commit {number}")
        listed = api.list_repo_commits(REPO)
        assert [commit.created_at for commit in listed] == dates[::-1]
        assert [commit.title for commit in listed][:2] == ["Commit 4", "Commit 3"]
        assert [commit.sha for commit in hub.commits(REPO)] == [commit.commit_id for commit in listed]
        assert hub.commits(REPO)[1].files["n.txt"] == b"3"

    def test_branches_tags_and_ids_name_revisions(self, hub, api, repo):
        first = api.model_info(repo).sha
        api.create_tag(repo, tag="v1")
        api.create_branch(repo, branch="next")
        add(api, {"config.json": b"next"}, revision="next")
        add(api, {"config.json": b"main"})
        for revision, content in (("v1", b"{}"), (first, b"{}"), ("next", b"next"), ("main", b"main")):
            assert read(repo, "config.json", revision=revision) == content
        assert api.model_info(repo, revision=first[:8]).sha == first
        refs = api.list_repo_refs(repo)
        assert {branch.name for branch in refs.branches} == {"main", "next"}
        assert [(tag.name, tag.target_commit) for tag in refs.tags] == [("v1", first)]
        api.delete_tag(repo, tag="v1")
        api.delete_branch(repo, branch="next")
        for gone in ("v1", "next", "0" * 40):
            with pytest.raises(RevisionNotFoundError):
                read(repo, "config.json", revision=gone)

    def test_anyone_who_can_read_opens_a_pull_request(self, hub, api, repo, upload_path):
        stranger = HfApi(token=hub.token("stranger"))
        pull = add(stranger, {"config.json": b"better", "extra.bin": b"extra"}, create_pr=True)
        assert pull.pr_revision == "refs/pr/1" and pull.pr_num == 1
        assert hub.files(repo)["config.json"] == b"{}"
        assert hub.files(repo, "refs/pr/1")["extra.bin"] == b"extra"
        assert read(repo, "config.json", revision="refs/pr/1") == b"better"
        refs = api.list_repo_refs(repo, include_pull_requests=True)
        assert [ref.ref for ref in refs.pull_requests] == ["refs/pr/1"]
        api.merge_pull_request(repo, 1)
        assert hub.files(repo)["config.json"] == b"better"

    def test_a_folder_can_become_a_pull_request(self, hub, api, repo, upload_path, tmp_path):
        (tmp_path / "new.bin").write_bytes(b"new")
        pull = api.upload_folder(repo_id=repo, folder_path=tmp_path, allow_patterns="new.bin", create_pr=True)
        assert hub.files(repo, f"refs/pr/{pull.pr_num}")["new.bin"] == b"new"

    def test_a_squash_leaves_one_commit_and_the_tags(self, hub, api, repo):
        old = api.model_info(repo).sha
        add(api, {"config.json": b"new"})
        between = api.model_info(repo).sha
        api.create_tag(repo, tag="kept", revision=old)
        api.super_squash_history(repo, commit_message="Squashed")
        assert [commit.title for commit in api.list_repo_commits(repo)] == ["Squashed"]
        assert hub.files(repo)["config.json"] == b"new"
        assert read(repo, "config.json", revision="kept") == b"{}"
        with pytest.raises(RevisionNotFoundError):
            read(repo, "config.json", revision=between)

    def test_a_commit_on_an_outdated_parent_is_refused(self, hub, api, repo):
        parent = api.model_info(repo).sha
        add(api, {"config.json": b"1"}, parent_commit=parent)
        with pytest.raises(HfHubHTTPError, match="412"):
            add(api, {"config.json": b"2"}, parent_commit=parent)
        assert hub.files(repo)["config.json"] == b"1"

    def test_a_commit_without_its_object_is_refused_whole(self, hub, api, repo):
        before = hub.commits(repo)
        lines = (
            b'{"key": "header", "value": {"summary": "Bad"}}\n'
            b'{"key": "file", "value": {"path": "a.txt", "content": "YQ=="}}\n'
            b'{"key": "lfsFile", "value": {"path": "b.bin", "algo": "sha256", "oid": "%s"}}\n' % (b"0" * 64)
        )
        headers = {"Authorization": f"Bearer {hub.token('owner')}"}
        answer = httpx2.post(f"{hub.url}/api/models/{repo}/commit/main", content=lines, headers=headers)
        assert answer.status_code == 400 and hub.commits(repo) == before


class TestLibrariesOverTheClient:
    def test_a_model_and_its_tokenizer_make_the_round_trip(self, hub, upload_path, tokenizer):
        model = make_model()
        model.push_to_hub(REPO, private=True)
        tokenizer.push_to_hub(REPO)
        assert hub.is_private(REPO)
        pulled = AutoModelForSequenceClassification.from_pretrained(REPO)
        assert all(torch.equal(pulled.state_dict()[name], value) for name, value in model.state_dict().items())
        assert AutoTokenizer.from_pretrained(REPO).get_vocab() == tokenizer.get_vocab()
        with pytest.raises(OSError, match="not a valid model identifier"):
            AutoModelForSequenceClassification.from_pretrained(REPO, token=hub.token("stranger"))
        with hub.offline():
            AutoModelForSequenceClassification.from_pretrained(REPO)

    def test_evaluate_loads_a_metric_from_a_space(self, hub, api):
        api.create_repo("owner/jsd", repo_type="space", space_sdk="gradio")
        api.upload_folder(repo_id="owner/jsd", repo_type="space", folder_path=metrics.path("jsd"))
        metric = evaluate.load("owner/jsd")
        assert metric.compute(predictions=[[0.5, 0.5]], references=[[0.5, 0.5]])["jsd"] == pytest.approx(0)


class TestFaults:
    """What the client does about each fault; where it gives up at once, so does all that is built on it."""

    def test_server_errors_of_uploads_are_tried_again(self, hub, api, repo):
        hub.fail(status=500, method="PUT", times=2)
        hub.fail(status=503, path="/preupload/")
        add(api, {"other.bin": b"other"})
        assert asked(hub, "PUT", "/lfs-upload/")[-3:] == [500, 500, 200]
        assert hub.files(repo)["other.bin"] == b"other"

    def test_a_rate_limit_is_waited_for(self, hub, api, repo):
        hub.fail(status=429, retry_after=30, path="/preupload/")
        add(api, {"config.json": b"new"})
        assert hub.waits == [31]

    def test_a_commit_is_not_tried_again(self, hub, api, repo):
        before = hub.commits(repo)
        for status in (429, 500):
            hub.fail(status=status, path="/commit/")
            with pytest.raises(HfHubHTTPError, match=str(status)):
                add(api, {"config.json": b"new"})
        assert hub.commits(repo) == before

    def test_a_full_disk_is_an_error(self, hub, api, repo):
        before = hub.commits(repo)
        hub.fail(status=507, method="PUT")
        with pytest.raises(RuntimeError, match=r"other\.bin"):
            add(api, {"other.bin": b"other"})
        assert hub.commits(repo) == before

    def test_a_cut_upload_is_sent_again(self, hub, api):
        api.create_repo(REPO)
        hub.fail(cut_after=1000, method="PUT")
        add(api, {"model.safetensors": WEIGHTS})
        assert asked(hub, "PUT", "/lfs-upload/") == [None, 200]
        assert hub.files(REPO)["model.safetensors"] == WEIGHTS

    def test_a_cut_commit_changes_nothing(self, hub, api, repo):
        before = hub.commits(repo)
        hub.fail(cut_after=10, path="/commit/")
        with pytest.raises(httpx2.TransportError):
            add(api, {"config.json": b"new"})
        assert hub.commits(repo) == before

    def test_a_commit_whose_answer_is_lost_is_made(self, hub, api, repo):
        hub.fail(lose_answer=True, path="/commit/")
        with pytest.raises(httpx2.TransportError):
            add(api, {"config.json": b"new"})
        assert hub.files(repo)["config.json"] == b"new"

    def test_a_slow_answer_is_waited_for_unless_the_cache_has_one(self, hub, repo):
        hub.fail(delay=0.2, path=RESOLVE, times=2)
        assert read(repo, "config.json") == b"{}"
        hub.fail(delay=0.2, method="HEAD", path=RESOLVE)
        assert read(repo, "config.json", etag_timeout=0.05) == b"{}"
        assert len(asked(hub, "GET", RESOLVE)) == 1

    def test_a_refusal_is_an_error(self, hub, api, repo):
        hub.fail(status=403, path=f"/api/models/{repo}")
        with pytest.raises(HfHubHTTPError, match="403"):
            api.model_info(repo)
        assert api.model_info(repo).sha  # faults are used up


class TestFaultsOfXet:
    @pytest.fixture(autouse=True)
    def by_xet(self, hub, monkeypatch):
        hub.use_xet(monkeypatch, True)

    @pytest.mark.parametrize("where", ["/v1/xorbs/", "/v1/shards", "/xet-write-token/"])
    @pytest.mark.parametrize("fault", [{"status": 500}, {"status": 429, "retry_after": 0}, {"cut_after": 0}])
    def test_uploads_are_tried_again(self, hub, api, where, fault):
        api.create_repo(REPO)
        hub.fail(path=where, **fault)
        add(api, {"model.safetensors": WEIGHTS})
        assert hub.files(REPO)["model.safetensors"] == WEIGHTS
        assert not hub.faults

    @pytest.mark.parametrize("where", ["/v1/reconstructions/", "/xorb-data/"])
    @pytest.mark.parametrize("fault", [{"status": 500}, {"cut_after": 20}])
    def test_downloads_are_tried_again(self, hub, repo, where, fault):
        hub.fail(path=where, **fault)
        assert read(repo, "model.safetensors") == WEIGHTS
        assert not hub.faults

    def test_a_full_disk_leaves_the_repo_as_it_was(self, hub, api, repo):
        before = hub.commits(repo)
        hub.fail(status=507, path="/v1/xorbs/", times=99)
        with pytest.raises(ConnectionError, match="507"):
            add(api, {"other.bin": b"other" * 1000})
        assert hub.commits(repo) == before

    def test_a_folders_commit_is_tried_again(self, hub, api, repo, tmp_path):
        """Unlike create_commit; so a commit whose answer is lost is made twice."""
        (tmp_path / "new.bin").write_bytes(b"new" * 1000)
        before = len(hub.commits(repo))
        hub.fail(status=500, path="/commit/")
        hub.fail(lose_answer=True, path="/commit/")
        api.upload_folder(repo_id=repo, folder_path=tmp_path, allow_patterns="new.bin")
        assert asked(hub, "POST", "/commit/")[-3:] == [500, None, 200]
        assert len(hub.commits(repo)) == before + 2

    def test_a_token_for_one_repo_opens_no_other(self, hub, api, repo):
        api.create_repo("stranger/own", token=hub.token("stranger"))
        tokens = f"{hub.url}/api/models/stranger/own/xet-write-token/main"
        given = httpx2.get(tokens, headers={"Authorization": f"Bearer {hub.token('stranger')}"}).json()
        (entry,) = api.get_paths_info(repo, ["model.safetensors"])
        address = f"{given['casUrl']}/v1/reconstructions/{entry.xet_hash}"
        answer = httpx2.get(address, headers={"Authorization": f"Bearer {given['accessToken']}"})
        assert answer.status_code == 404


def test_every_byte_that_arrives_is_on_record(hub, api, upload_path):
    api.create_repo(REPO, private=True)
    files = {"a.txt": b"needle in a file", "b.bin": b"needle in a large file" * 3000}
    add(api, files, "needle in a message", commit_description="needle in a description")
    api.create_tag(REPO, tag="v1", tag_message="needle in a tag")
    record = list(hub.everything())
    for needle in (*files.values(), b"needle in a message", b"needle in a description", b"needle in a tag"):
        assert any(needle in content for _, content in record), needle
    assert not any(hub.token("owner").encode() in content for _, content in record)


def test_a_stopped_hub_answers_nobody_and_comes_back_as_it_was(hub, api, repo):
    hub.stop()
    with pytest.raises(httpx2.ConnectError):
        api.model_info(repo)
    hub.start()
    assert api.model_info(repo).sha == hub.commits(repo)[0].sha
