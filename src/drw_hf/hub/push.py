"""Pushing protected models and their keys: checked before anything is uploaded, and committed as one."""

import inspect
import json
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, Unpack

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants
from huggingface_hub.errors import RepositoryNotFoundError

from ..checks import check_options
from ..errors import ConfigurationError, HubError, KeyMismatchError, MissingKeyError, PlainKeyRefusedError
from ..evidence.commitments import missing_files
from ..evidence.timestamps import request_timestamp
from ..keys.binding import tokenizer_fingerprint
from ..keys.files import KINDS, POINTER_FILE
from ..keys.kept import KeptSecret, KeyPushOptions, PushOptions
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from ..keys.sealing import check_passphrase
from ..repositories.requests import commit_name, full_name, hub_errors, parse_object, read_file
from ..watermark.modeling import ModelPushOptions, _WatermarkedModel
from .card import model_card
from .handler import HANDLER, REQUIREMENTS, UNFILLED, WHEELS, handler_files, merge_requirements
from .pull import Pointer, join

CARD = "README.md"
_CARD_ARGUMENTS = inspect.signature(model_card).parameters.keys() - {"model", "existing"}
_KEY_FILES = {POINTER_FILE, *(name for kind in KINDS for name in (kind.file, kind.arrays_file))}
# Weights of an earlier push that this one may not overwrite, and that from_pretrained would take for the model's.
_WEIGHTS = (
    "model*.safetensors",
    "model.safetensors.index.json",
    "pytorch_model*.bin",
    "pytorch_model.bin.index.json",
    "adapter_config.json",
    "adapter_model.*",
)


@dataclass(frozen=True)
class KeyThere:
    """The key a repository holds or names."""

    commitment: str
    sealed: bool
    head: str | None = None  # the digest of a ring's history


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
        return read_file(self.repo_id, path, self.head, token=self.api.token) if path in self.files else None

    def key_there(self, subfolder: str = "") -> KeyThere | None:
        """The key that lies here, that is pointed to from here, or that a model here was protected with."""
        for name in (*(kind.file for kind in KINDS), POINTER_FILE):
            content = self.read(join(subfolder, name))
            if content is not None:
                found = parse_object(content)
                sealed = name != POINTER_FILE and found.get("sealed") is True
                return KeyThere(str(found.get("commitment")), sealed, found.get("head"))
        config = {} if subfolder else parse_object(self.read("config.json") or b"")
        return KeyThere(str(config["key_commitment"]), False) if config.get("key_commitment") is not None else None

    def commit(
        self, files: Mapping[str, Path | bytes], delete: set[str], message: str, *, plain: bool, **options: Any
    ) -> Any:
        """Commit as one: all of it, or nothing.

        With ``plain``, a plain key among the files, who may see the repository is asked again when everything but the
        key is there, and once more at the end.
        """
        self._refuse_ignored(files)
        additions = {path: CommitOperationAdd(path, content) for path, content in files.items()}
        deletions = [CommitOperationDelete(path) for path in sorted(delete & self.files - files.keys())]
        with hub_errors(self.repo_id, "pushing to", self.revision):
            if plain:
                others = [added for path, added in additions.items() if PurePosixPath(path).name not in _KEY_FILES]
                target: dict[str, Any] = {"revision": self.revision, "create_pr": options.get("create_pr")}
                self.api.preupload_lfs_files(self.repo_id, others, free_memory=False, **target)
                if _visibility(self.api, self.repo_id) is not True:
                    raise _refusal(self.repo_id, "it turned public meanwhile")
            try:
                commit = self.api.create_commit(
                    self.repo_id,
                    [*additions.values(), *deletions],
                    commit_message=message,
                    revision=self.revision,
                    parent_commit=self.head,
                    **options,
                )
            except ValueError as error:  # what the Hub has against the card
                raise ConfigurationError(f"the Hub did not accept the model card's metadata: {error}") from None
            if plain and _visibility(self.api, self.repo_id) is not True:
                raise HubError(
                    f"{self.repo_id} turned public while the plain key was pushed: treat the key as known to all, "
                    "make a new one and rotate"
                )
        return commit

    def _refuse_ignored(self, files: Mapping[str, Path | bytes]) -> None:
        """Refuse a repository that would leave the key out: the Hub heeds the ``.gitignore`` it holds."""
        ignored = (self.read(".gitignore") or b"").decode(errors="replace").splitlines()
        for path in files:
            name = PurePosixPath(path).name
            if name in _KEY_FILES and any(fnmatch(name, line.strip("/ ")) for line in ignored):
                raise HubError(f"the .gitignore in {self.repo_id} leaves out {path}, so the key would not be pushed")


def push_model(
    model: _WatermarkedModel, repo_id: str, passphrase: str | None, **options: Unpack[ModelPushOptions]
) -> Any:
    """Push a protected model, with its key beside it or in another repository; the parameters are the model's.

    What can be refused is refused before anything is uploaded. The key goes first where it goes elsewhere, and all
    that belongs into the model's own repository is one commit: there is never a model without its key.
    """
    check_options("push_to_hub", options, ModelPushOptions)
    key = model.key
    if key is None:
        raise MissingKeyError(
            "this protected model has lost its key, so it cannot be pushed with it; load it with from_pretrained(..., "
            "key=...) first"
        )
    key_goes, timestamp_url = options.get("push_key", True), options.get("timestamp_url")
    tags, tokenizer = options.get("tags"), options.get("tokenizer")
    card_arguments = {**(options.get("card") or {}), **({"tags": tags} if tags else {})}
    _check_what_is_pushed(key, passphrase, options, card_arguments)
    model_card(model, **card_arguments)  # says now, not halfway, if it cannot be written
    endpoint = handler_files(options.get("package")) if options.get("handler") else {}
    api = HfApi(token=options.get("token"), library_name="drw_hf")
    repo_id, key_repo_id = full_name(api, repo_id), options.get("key_repo_id")
    elsewhere = None if key_repo_id is None else full_name(api, key_repo_id)
    plain = key_goes and passphrase is None
    plain_here = plain and elsewhere is None
    _refuse_open_place(api, repo_id, options.get("private", True), plain_here)
    if elsewhere is not None:
        if elsewhere == repo_id:
            raise ConfigurationError(f"key_repo_id={elsewhere!r} is the model's own repository; leave it out")
        _refuse_open_place(api, elsewhere, True, plain)

    stamp, commitment = None, _commitment_of(key, timestamp_url)
    if timestamp_url is not None and commitment is not None and _visibility(api, repo_id) is None:
        stamp = request_timestamp(commitment, timestamp_url)  # no stamp, no repository
    repository = open_repository(api, repo_id, options, plain_here)
    there = _refuse_another_key(repository, key, options, plain_here)
    if not repository.private:
        warnings.warn(
            f"{repo_id} is public, and the weights of a protected model are those of the clean one: whoever downloads "
            "them has the model without the mark. Only answers that you serve are marked.",
            stacklevel=4,
        )
    with tempfile.TemporaryDirectory(prefix="drw_hf-") as folder:
        model.save_pretrained(folder, max_shard_size=options.get("max_shard_size") or "50GB")
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        files: dict[str, Path | bytes] = {
            path.relative_to(folder).as_posix(): path for path in Path(folder).rglob("*") if path.is_file()
        }
        existing = repository.read(CARD)
        text = None if existing is None else existing.decode(errors="surrogateescape")
        files[CARD] = model_card(model, existing=text, **card_arguments).encode(errors="surrogateescape")
        if endpoint:
            files.update(_handler_beside(repository, endpoint))
        if commitment is not None:
            files.update(missing_files(commitment, repo_id, repository.read, timestamp_url, stamp))
        if elsewhere is not None:  # into a folder of its own
            replaces, token = options.get("replace_key", False), options.get("token")
            pushed = push_key(key, elsewhere, passphrase, subfolder=key.fingerprint, replace_key=replaces, token=token)
            pointer = Pointer(elsewhere, pushed.oid, key.fingerprint, key.identity)
            files[POINTER_FILE] = (json.dumps(pointer.to_document(), indent=2) + "\n").encode()
        elif key_goes:
            files.update(key.to_files(passphrase=passphrase))
        stale = {path for path in repository.files for pattern in _WEIGHTS if fnmatch(path, pattern)}
        if options.get("package") is not None:
            stale |= {path for path in repository.files if fnmatch(path, WHEELS)}
        if key_goes or (there is not None and there.commitment != key.identity):
            stale |= _KEY_FILES  # without a key to push, one that is there stays if it is this model's
        return repository.commit(
            files,
            stale,
            options.get("commit_message") or "Upload protected model",
            plain=plain_here,
            commit_description=options.get("commit_description"),
            create_pr=options.get("create_pr", False),
        )


def push_key(key: KeptSecret, repo_id: str, passphrase: str | None, **options: Unpack[KeyPushOptions]) -> Any:
    """Push a key or ring alone; the parameters are those of :meth:`~drw_hf.keys.kept.KeptSecret.push_to_hub`."""
    check_options("push_to_hub", options, KeyPushOptions)
    if passphrase is not None:
        check_passphrase(passphrase)
    api = HfApi(token=options.get("token"), library_name="drw_hf")
    repo_id = full_name(api, repo_id)
    plain, subfolder = passphrase is None, options.get("subfolder", "")
    _refuse_open_place(api, repo_id, options.get("private", True), plain)
    repository = open_repository(api, repo_id, options, plain)
    _refuse_another_key(repository, key, options, plain, subfolder)
    files = {join(subfolder, name): content for name, content in key.to_files(passphrase=passphrase).items()}
    stale = {join(subfolder, name) for name in _KEY_FILES} - files.keys()
    message = options.get("commit_message") or f"Upload key {key.fingerprint}"
    return repository.commit(files, stale, message, plain=plain, create_pr=options.get("create_pr", False))


def open_repository(api: HfApi, repo_id: str, options: PushOptions, plain: bool) -> Repository:
    """Make a repository (and branch) if it is not there, and look at it.

    ``plain``: a plain key is to go there, so it must be private beyond doubt.
    """
    revision = options.get("revision")
    with hub_errors(repo_id, "pushing to", revision):
        if _visibility(api, repo_id) is None:
            api.create_repo(repo_id, private=options.get("private", True), exist_ok=True)
        if revision is not None and not revision.startswith("refs/pr/") and not options.get("create_pr"):
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        info = api.model_info(repo_id, revision=revision)
    if plain and info.private is not True:
        raise _refusal(repo_id, "it is not known to be private")
    files = frozenset(str(sibling.rfilename) for sibling in info.siblings or [])
    return Repository(api, repo_id, revision, info.private is True, commit_name(info.sha, repo_id), files)


def _check_what_is_pushed(
    key: KeptSecret, passphrase: str | None, options: ModelPushOptions, card_arguments: Mapping[str, Any]
) -> None:
    if not options.get("push_key", True):
        for name, value in (("a passphrase", passphrase), ("key_repo_id", options.get("key_repo_id"))):
            if value is not None:
                raise ConfigurationError(f"push_key=False pushes no key, so {name} has no use; leave one of them out")
    if passphrase is not None:
        check_passphrase(passphrase)
    if options.get("package") is not None and not options.get("handler"):
        raise ConfigurationError("package= is what an endpoint installs, so it goes with handler=True; give both")
    unknown = card_arguments.keys() - _CARD_ARGUMENTS
    if unknown:
        raise ConfigurationError(f"card={sorted(unknown)}: expected some of {sorted(_CARD_ARGUMENTS)}")
    tokenizer, known = options.get("tokenizer"), key.binding.tokenizer_fingerprint
    if tokenizer is not None and known not in (None, tokenizer_fingerprint(tokenizer)):
        raise KeyMismatchError(
            f"the key {key.fingerprint} was made with another tokenizer than the one to be pushed; give the model's"
        )


def _visibility(api: HfApi, repo_id: str) -> bool | None:
    """Whether a repository is private; None where there is none (that we could see)."""
    with hub_errors(repo_id, "pushing to"):
        try:
            return api.repo_info(repo_id).private is True
        except RepositoryNotFoundError:
            return None


def _refuse_open_place(api: HfApi, repo_id: str, private: bool | None, plain: bool) -> None:
    """Refuse a plain key, before anything is made or uploaded, where a repository is or would be open to others."""
    if not plain:
        return
    if constants.HF_DEBUG:
        raise _refusal(repo_id, "HF_DEBUG writes what is sent into the log; unset it")
    found = _visibility(api, repo_id)
    if found is False:
        raise _refusal(repo_id, "it is public")
    if found is None and private is not True:
        would = "be public" if private is False else "not be known to be private"
        raise _refusal(repo_id, f"with private={private!r} it would {would}")


def _refusal(repo_id: str, why: str) -> PlainKeyRefusedError:
    return PlainKeyRefusedError(
        f"a plain key does not go into {repo_id}: {why}. Nothing was uploaded. Give a passphrase= to seal the key, "
        "key_repo_id= to put it into a private repository, or push to a private one"
    )


def _refuse_another_key(
    repository: Repository, key: KeptSecret, options: PushOptions, plain: bool, subfolder: str = ""
) -> KeyThere | None:
    """The key that is there, if it may be replaced by this one."""
    found = repository.key_there(subfolder)
    if found is None or options.get("replace_key"):
        return found
    where = join(repository.repo_id, subfolder)
    if found.commitment != key.identity:
        raise KeyMismatchError(
            f"{where} holds another key ({found.commitment[:16]}), without which what it marked cannot be proven. "
            "Nothing was uploaded. Push to another place, or pass replace_key=True: the old key then stays in the "
            f"history, at revision {repository.head[:12]}"
        )
    if found.head is not None and found.head not in key.history_digests():
        raise KeyMismatchError(
            f"{where} holds the same key ring with epochs or declarations that this one does not have, and they would "
            "be lost. Nothing was uploaded. Pull it from there and declare or rotate again"
        )
    if found.sealed and plain:
        raise PlainKeyRefusedError(
            f"{where} holds this key sealed, and plain it would stay in the history for good. Nothing was uploaded. "
            "Give the passphrase=, push_key=False to leave the key as it is, or replace_key=True to have it plain"
        )
    return found


def _commitment_of(key: WatermarkKey | KeyRing, timestamp_url: str | None) -> str | None:
    """What is published of a key; of a ring, the root over its users' keys once they were declared."""
    if isinstance(key, KeyRing) and key.declared is None:
        if timestamp_url is not None:
            raise ConfigurationError("nobody was declared in this key ring, so there is nothing to be time-stamped")
        return None
    return key.commitment()


def _handler_beside(repository: Repository, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The endpoint's files, without taking anything of the owner's away."""
    files = dict(files)
    handler, requirements = repository.read(HANDLER), repository.read(REQUIREMENTS)
    if handler is not None and b"drw_hf" not in handler:
        raise ConfigurationError(
            f"{repository.repo_id} has a handler.py of its own. Nothing was uploaded. Move it away, or leave out "
            "handler="
        )
    if requirements is not None:
        files[REQUIREMENTS] = merge_requirements(requirements, files[REQUIREMENTS])
    if UNFILLED in files[REQUIREMENTS]:
        warnings.warn(
            f"no package= was given, so the requirements.txt in {repository.repo_id} does not say yet where the "
            "endpoint installs drw_hf from, and the endpoint will not start. Give a wheel or an address, or fill it "
            "in there",
            stacklevel=5,
        )
    return files
