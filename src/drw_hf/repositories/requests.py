"""What goes wrong between us and the Hub, in our own words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx2
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_backoff

from ..errors import ConfigurationError, DrwError, HubError, RepositoryAccessError, RevisionMissingError
from ..reading.answers import RefusedAnswer, answers_within, too_large
from ..reading.files import LARGEST_DOCUMENT, MEBIBYTE, parse_json
from ..watermark.configuration import is_hub_id

_LOG_IN = "log in as an account that may use it (`hf auth login`), or pass its token="
_NO_ACCESS = (GatedRepoError, DisabledRepoError, RepositoryNotFoundError, LocalTokenNotFoundError)
# What an error means, by the first class that fits.
_MEANINGS: dict[type[Exception], str] = {
    GatedRepoError: f"the repository is gated and {{about_token}}; ask for access on its page, then {_LOG_IN}",
    DisabledRepoError: "the Hub has disabled the repository; ask its support why",
    RepositoryNotFoundError: (
        f"there is no such repository, or it is private and {{about_token}}; check the name, and {_LOG_IN}"
    ),
    RevisionNotFoundError: "it does not have {revision}; give a branch, a tag or a commit that it has",
    LocalTokenNotFoundError: f"it needs a token and none was found; {_LOG_IN}",
    OfflineModeIsEnabled: "offline mode is on; unset HF_HUB_OFFLINE to let it use the network",
    LocalEntryNotFoundError: (
        "the Hub cannot be reached, or is not to be asked, and the local cache does not hold the file; try again with "
        "a connection"
    ),
    RevisionResolutionError: "the Hub cannot be reached to say which commit is meant; try again, or give a commit",
    HFValidationError: "{repo_id!r} cannot be the name of a repository; expected 'user/name'",
    httpx2.TimeoutException: "the Hub did not answer in time; try again later",
    TimeoutError: "the Hub did not answer in time; try again later",
    RuntimeError: "a file did not go through to the Hub's storage; try again",  # LFS and Xet raise a bare one
}
# What the client raises of an answer that is not what it expects: it takes the Hub at its word.
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, AssertionError)
_TRANSLATED: tuple[type[Exception], ...] = (
    *_MEANINGS,
    httpx2.HTTPError,
    httpx2.InvalidURL,
    ConnectionError,
    RefusedAnswer,
    *_MALFORMED,
)
_LARGEST_ANSWER = 64 * MEBIBYTE  # a page of a list of files
_PATIENCE = {"reading": 30.0}  # seconds
_PATIENCE_WITH_WRITING = 300.0  # a commit of many files takes the Hub its time


@contextmanager
def hub_errors(
    repo_id: str, doing: str = "reading", revision: str | None = None, most: int = _LARGEST_ANSWER
) -> Iterator[None]:
    """Turn what huggingface_hub raises inside the block into :class:`HubError` or :class:`RepositoryAccessError`.

    Only calls to the Hub belong into the block. Its answers are read and waited for within limits (``most`` bytes
    each), and whatever else the client raises is put down to a malformed one. A file that a repository does not have
    (``EntryNotFoundError``) passes unchanged, and so do our own errors. The new error keeps nothing of the old one:
    its frames may hold the files that were on their way, and its request the token. The other arguments are for the
    message.
    """
    try:
        with answers_within(most, _PATIENCE.get(doing, _PATIENCE_WITH_WRITING)):
            yield
    except (DrwError, RemoteEntryNotFoundError):
        raise
    except _TRANSLATED as error:
        translated = _translate(error, repo_id, doing, revision)
        _forget(error)
        raise translated from None


def full_name(api: HfApi, repo_id: str, doing: str = "pushing to") -> str:
    """With the user's namespace, if none is given: who may see a repository can only be asked by its whole name."""
    if not is_hub_id(repo_id):
        raise ConfigurationError(f"{repo_id!r} cannot be the name of a repository; expected 'user/name'")
    if "/" in repo_id:
        return repo_id
    with hub_errors(repo_id, doing):
        return f"{api.whoami()['name']}/{repo_id}"


def read_file(
    repo_id: str,
    path: str,
    revision: str,
    *,
    repo_type: str = "model",
    token: bool | str | None = None,
    most: int = LARGEST_DOCUMENT,
) -> bytes | None:
    """A file's content, or None where the repository does not have it; one of more than ``most`` bytes is refused.

    Read into memory: what goes through the local cache lies there for others of the machine to read.
    """
    url = hf_hub_url(repo_id, path, repo_type=repo_type, revision=revision)
    with hub_errors(repo_id, "reading", revision, most):
        try:
            response = http_backoff("GET", url, headers=build_hf_headers(token=token, library_name="drw_hf"))
            hf_raise_for_status(response)
            if len(response.content) > most:
                raise too_large(most)
        except RemoteEntryNotFoundError:
            return None
    return response.content


def commit_name(name: Any, repo_id: str) -> str:
    """The name of a commit as the Hub gives it: 40 hexadecimal digits, for it may become part of a path."""
    if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{40}", name):
        raise HubError(
            f"reading {repo_id} failed: the Hub names a commit by something else than 40 hexadecimal digits; nothing "
            "was written: check the endpoint (HF_ENDPOINT) and the proxy"
        )
    return name


def parse_object(content: bytes) -> dict[str, Any]:
    """A JSON object that a repository holds; an empty one for anything else."""
    document = parse_json(content)
    return document if isinstance(document, dict) else {}


def _translate(error: BaseException, repo_id: str, doing: str, revision: str | None) -> HubError:
    failed = f"{doing} {repo_id} failed"
    # A bare RuntimeError and a file missing from the cache say little; what caused them says more.
    if isinstance(error, RuntimeError | LocalEntryNotFoundError) and isinstance(error.__cause__, _TRANSLATED):
        error = error.__cause__

    kind = next((kind for kind in _MEANINGS if isinstance(error, kind)), None)
    if kind is None:
        if isinstance(error, HfHubHTTPError):
            return _translate_status(error, failed)
        if isinstance(error, RefusedAnswer):
            return HubError(f"{failed}: {error}; do not use what is there")
        if isinstance(error, _MALFORMED):
            return HubError(
                f"{failed}: the answer is not of the Hub's form ({type(error).__name__}); check the endpoint "
                "(HF_ENDPOINT) and the proxy, or update huggingface_hub"
            )
        return HubError(f"{failed}: the connection could not be made or broke ({type(error).__name__}); try again")
    meaning = _MEANINGS[kind].format(
        about_token=_about_token(error) if isinstance(error, HfHubHTTPError) else "",
        revision="the revision asked for" if revision is None else f"the revision {revision!r}",
        repo_id=repo_id,
    )
    if kind is RevisionNotFoundError:
        return RevisionMissingError(f"{failed}: {meaning}")
    return (RepositoryAccessError if kind in _NO_ACCESS else HubError)(f"{failed}: {meaning}")


def _translate_status(error: HfHubHTTPError, failed: str) -> HubError:
    status = error.response.status_code
    message = _server_message(error)
    if status in (401, 403):
        return RepositoryAccessError(f"{failed} with status {status}{message}: {_about_token(error)}; {_LOG_IN}")
    if status in (409, 412):
        advice = "somebody else changed the repository meanwhile; look at it, then try again"
    elif status == 429:
        wait = error.response.headers.get("Retry-After")
        advice = f"too many requests; try again {f'in {wait} seconds' if wait and wait.isdigit() else 'later'}"
    elif status >= 500:
        advice = "the Hub has a problem of its own; try again later"
    else:
        advice = "the Hub did not accept the request"
    return HubError(f"{failed} with status {status}{message}: {advice}")


def _about_token(error: HfHubHTTPError) -> str:
    sent = "authorization" in error.response.request.headers
    return "the token that was sent does not open it" if sent else "no token was sent"


def _server_message(error: HfHubHTTPError) -> str:
    """The server's own words, on one short line, without the token should it repeat it."""
    words = " ".join((error.server_message or "").split())
    token = error.response.request.headers.get("authorization", "").removeprefix("Bearer ")
    if token:
        words = words.replace(token, "…")
    return f" ({words[:200]})" if words else ""


def _forget(error: BaseException | None) -> None:
    """Empty an error, and those behind it, of the frames and the headers they hold.

    Whatever is raised while it is being handled gets it as its context, and error reporters walk there.
    """
    seen = set()
    holder: Any  # it may have no request
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for holder in (error, getattr(error, "response", None)):  # HfHubHTTPError has its request in its response only
            with suppress(AttributeError, RuntimeError):  # not of HTTP, or raised before there was a request
                holder.request.headers.pop("authorization", None)
        behind = error.__cause__ or error.__context__
        error.__traceback__ = error.__cause__ = error.__context__ = None
        error = behind
