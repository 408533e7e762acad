"""Pushing protected models and their keys: checked before anything is uploaded, and committed as one."""

import json
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from ..errors import ConfigurationError, KeyMismatchError, MissingKeyError, PlainKeyRefusedError
from ..keys.binding import tokenizer_fingerprint
from ..keys.files import ARRAYS_FILE, KEY_FILE, POINTER_FILE, read_envelope
from ..keys.key import WatermarkKey
from ..keys.sealing import check_passphrase
from .card import model_card
from .commitments import commitment_files
from .handler import handler_files
from .pull import Place, Pointer
from .requests import hub_errors
from .timestamps import request_timestamp

if TYPE_CHECKING:
    from ..watermark.modeling import _WatermarkedModel

CARD = "README.md"


@dataclass(frozen=True)
class KeyTarget:
    """Where a key is to go."""

    repo_id: str
    subfolder: str = ""
    private: bool | None = True
    revision: str | None = None
    create_pr: bool = False


@dataclass(frozen=True)
class ModelPush:
    """What to push beside a protected model's weights, and how."""

    private: bool | None = True
    key_repo_id: str | None = None
    push_key: bool = True
    replace_key: bool = False
    tokenizer: Any = None
    card: Mapping[str, Any] | None = None
    handler: bool = False
    timestamp_url: str | None = None
    commit_message: str | None = None
    commit_description: str | None = None
    token: bool | str | None = None
    revision: str | None = None
    create_pr: bool = False
    max_shard_size: int | str = "50GB"


@dataclass(frozen=True)
class Repository:
    """A repository as it was when it was looked at; a commit is refused if it has changed since."""

    api: HfApi
    repo_id: str
    revision: str | None
    private: bool
    head: str
    files: frozenset[str]

    def read(self, path: str) -> bytes | None:
        """A file's content at the head."""
        if path not in self.files:
            return None
        found = Place(self.repo_id, revision=self.head, token=self.api.token).fetch(path)
        return None if found is None else found.read_bytes()

    def committed_key(self, subfolder: str = "") -> str | None:
        """The commitment of the key that lies here, or that is pointed to from here."""
        place = Place(self.repo_id, revision=self.head, subfolder=subfolder, token=self.api.token)
        if _join(subfolder, KEY_FILE) in self.files:
            return read_envelope(place.fetch(KEY_FILE)).get("commitment")
        if _join(subfolder, POINTER_FILE) in self.files:
            return Pointer.read(place.fetch(POINTER_FILE)).commitment
        return None

    def commit(self, files: Mapping[str, Path | bytes], delete: set[str], message: str, **options: Any) -> Any:
        """Commit as one: all of it, or nothing."""
        operations = [CommitOperationAdd(path, content) for path, content in files.items()]
        operations += [CommitOperationDelete(path) for path in sorted(delete & self.files)]
        with hub_errors(self.repo_id, "pushing to", self.revision):
            return self.api.create_commit(
                self.repo_id,
                operations,
                commit_message=message,
                revision=self.revision,
                parent_commit=self.head,
                **options,
            )


def push_model(model: "_WatermarkedModel", repo_id: str, passphrase: str | None, options: ModelPush) -> Any:
    """Push a protected model, with its key beside it or in another repository; the parameters are the model's.

    What can be refused is refused before anything is uploaded. The key goes first where it goes elsewhere, and all
    that belongs into the model's own repository is one commit: there is never a model without its key.
    """
    key = model.key
    if key is None:
        raise MissingKeyError(
            "this protected model has lost its key, so it cannot be pushed with it; load it with from_pretrained(..., "
            "key=...) first"
        )
    _check_options(options, repo_id, key, passphrase)
    model_card(model, **(options.card or {}))  # says now, not halfway, if it cannot be written
    api = HfApi(token=options.token, library_name="drw_hf")
    elsewhere = options.key_repo_id if options.push_key else None
    plain = options.push_key and passphrase is None
    repo_id = _full_name(api, repo_id)
    _refuse_open_place(api, repo_id, options.private, plain and elsewhere is None)
    if elsewhere is not None:
        elsewhere = _full_name(api, elsewhere)
        if elsewhere == repo_id:
            raise ConfigurationError(f"key_repo_id={elsewhere!r} is the model's own repository; leave it out")
        _refuse_open_place(api, elsewhere, True, plain)
    stamp = None if options.timestamp_url is None else request_timestamp(key.commitment(), options.timestamp_url)

    repository = open_repository(
        api, repo_id, options.private, options.revision, plain and elsewhere is None, options.create_pr
    )
    _refuse_another_key(repository, "", key, options.replace_key)
    if not repository.private:
        warnings.warn(
            f"{repo_id} is public, and the weights of a protected model are those of the clean one: whoever downloads "
            "them has the model without the mark. Only answers that you serve are marked.",
            stacklevel=4,
        )
    with tempfile.TemporaryDirectory(prefix="drw_hf-") as folder:
        model.save_pretrained(folder, max_shard_size=options.max_shard_size)
        if options.tokenizer is not None:
            options.tokenizer.save_pretrained(folder)
        files: dict[str, Path | bytes] = {
            path.relative_to(folder).as_posix(): path for path in Path(folder).rglob("*") if path.is_file()
        }
        existing = repository.read(CARD)
        text = None if existing is None else existing.decode(errors="replace")
        files[CARD] = model_card(model, existing=text, **(options.card or {})).encode()
        if options.handler:
            files.update(handler_files())
        for path, content in commitment_files(key.commitment(), stamp).items():
            if path not in repository.files:  # an earlier time stamp is worth more than a later one
                files[path] = content
        if elsewhere is not None:
            pointer = _push_elsewhere(api, key, elsewhere, passphrase, options.replace_key)
            files[POINTER_FILE] = (json.dumps(pointer.to_document(), indent=2) + "\n").encode()
        elif options.push_key:
            files.update(key.to_files(passphrase=passphrase))
        # Without a key to push, one that is there stays, if it is this model's.
        stale = {KEY_FILE, ARRAYS_FILE, POINTER_FILE} - files.keys()
        return repository.commit(
            files,
            stale if options.push_key or options.replace_key else set(),
            options.commit_message or "Upload protected model",
            commit_description=options.commit_description,
            create_pr=options.create_pr,
        )


def _push_elsewhere(api: HfApi, key: WatermarkKey, repo_id: str, passphrase: str | None, replace_key: bool) -> Pointer:
    """Put a model's key into a repository for keys, in a folder of its own, and point there."""
    target = KeyTarget(repo_id, subfolder=key.fingerprint)
    pushed = _push_key(api, key, target, passphrase, replace_key, None)
    return Pointer(repo_id, pushed.oid, target.subfolder, key.commitment())


def push_key(
    key: WatermarkKey,
    target: KeyTarget,
    passphrase: str | None,
    replace_key: bool,
    commit_message: str | None,
    token: bool | str | None,
) -> Any:
    """Push a key alone; the parameters are those of :meth:`WatermarkKey.push_to_hub`."""
    if passphrase is not None:
        check_passphrase(passphrase)
    api = HfApi(token=token, library_name="drw_hf")
    return _push_key(api, key, target, passphrase, replace_key, commit_message)


def _push_key(
    api: HfApi,
    key: WatermarkKey,
    target: KeyTarget,
    passphrase: str | None,
    replace_key: bool,
    commit_message: str | None,
) -> Any:
    plain = passphrase is None
    repo_id = _full_name(api, target.repo_id)
    _refuse_open_place(api, repo_id, target.private, plain)
    repository = open_repository(api, repo_id, target.private, target.revision, plain, target.create_pr)
    _refuse_another_key(repository, target.subfolder, key, replace_key)
    files = {_join(target.subfolder, name): content for name, content in key.to_files(passphrase=passphrase).items()}
    stale = {_join(target.subfolder, name) for name in (ARRAYS_FILE, POINTER_FILE)} - files.keys()
    return repository.commit(
        files, stale, commit_message or f"Upload key {key.fingerprint}", create_pr=target.create_pr
    )


def open_repository(
    api: HfApi, repo_id: str, private: bool | None, revision: str | None, plain: bool, create_pr: bool = False
) -> Repository:
    """Make a repository (and branch) if it is not there, and look at it.

    ``plain``: a plain key is to go there, so it must be private beyond doubt.
    """
    with hub_errors(repo_id, "pushing to", revision):
        if _visibility(api, repo_id) is None:
            api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None and not revision.startswith("refs/pr/") and not create_pr:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        info = api.repo_info(repo_id, revision=revision)
    if plain and info.private is not True:
        raise _refusal(repo_id, "it is not known to be private")
    files = frozenset(sibling.rfilename for sibling in info.siblings or [])
    return Repository(api, repo_id, revision, info.private is True, info.sha, files)


def _check_options(options: ModelPush, repo_id: str, key: WatermarkKey, passphrase: str | None) -> None:
    if passphrase is not None:
        if not options.push_key:
            raise ConfigurationError("push_key=False pushes no key, so a passphrase has no use; leave one of them out")
        check_passphrase(passphrase)
    if options.key_repo_id is not None and not options.push_key:
        raise ConfigurationError("push_key=False pushes no key, so key_repo_id has no use; leave one of them out")
    tokenizer = options.tokenizer
    if tokenizer is not None and key.tokenizer_fingerprint not in (None, tokenizer_fingerprint(tokenizer)):
        raise KeyMismatchError(
            f"the key {key.fingerprint} was made with another tokenizer than the one to be pushed to {repo_id}; give "
            "the model's own"
        )


def _full_name(api: HfApi, repo_id: str) -> str:
    """With the user's namespace, if none is given: who may see a repository can only be asked by its whole name."""
    if "/" in repo_id:
        return repo_id
    with hub_errors(repo_id, "pushing to"):
        return f"{api.whoami()['name']}/{repo_id}"


def _visibility(api: HfApi, repo_id: str) -> bool | None:
    """Whether a repository is private; None where there is none (that we could see)."""
    try:
        return api.repo_info(repo_id).private is True
    except RepositoryNotFoundError:
        return None


def _refuse_open_place(api: HfApi, repo_id: str, private: bool | None, plain: bool) -> None:
    """Refuse a plain key, before anything is made or uploaded, where a repository is or would be open to others."""
    if not plain:
        return
    with hub_errors(repo_id, "pushing to"):
        found = _visibility(api, repo_id)
    if found is False:
        raise _refusal(repo_id, "it is public")
    if found is None and private is not True:
        raise _refusal(repo_id, f"with private={private!r} it would not be known to be private")


def _refusal(repo_id: str, why: str) -> PlainKeyRefusedError:
    return PlainKeyRefusedError(
        f"a plain key does not go into {repo_id}: {why}. Nothing was uploaded. Give a passphrase= to seal the key, "
        "key_repo_id= to put it into a private repository, or push to a private one"
    )


def _refuse_another_key(repository: Repository, subfolder: str, key: WatermarkKey, replace_key: bool) -> None:
    found = repository.committed_key(subfolder)
    if found not in (None, key.commitment()) and not replace_key:
        raise KeyMismatchError(
            f"{_join(repository.repo_id, subfolder).rstrip('/')} holds another key ({found[:16]}), without which what "
            "it marked cannot be proven. Nothing was uploaded. Push to another place, or pass replace_key=True: the "
            f"old key then stays in the history, at revision {repository.head[:12]}"
        )


def _join(*parts: str) -> str:
    return "/".join(part.strip("/") for part in parts if part)
