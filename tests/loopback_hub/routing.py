"""Which address leads where, and who may do what."""

import re
from collections.abc import Callable
from urllib.parse import unquote

from .messages import HubError
from .repos import Repo

KINDS = r"(?P<kind>models|datasets|spaces)"
API = rf"/api/{KINDS}/(?P<name>[^/]+/[^/]+)"
PLACE = r"/(?:(?P<kind>datasets|spaces)/)?(?P<name>[^/]+/[^/]+)"
ROUTES: list[tuple[str, re.Pattern, Callable]] = []


def route(methods: str, pattern: str):
    """Serve the addresses that match; named groups become arguments, unquoted."""

    def register(function):
        ROUTES.extend((method, re.compile(pattern), function) for method in methods.split())
        return function

    return register


def dispatch(hub, request):
    request.user = user_of(hub, request)
    method = "GET" if request.method == "HEAD" else request.method
    for allowed, pattern, function in ROUTES:
        match = pattern.fullmatch(request.path) if allowed == method else None
        if match:
            found = {name: unquote(value) if value else value for name, value in match.groupdict().items()}
            if "kind" in found:
                found["kind"] = (found["kind"] or "models").removesuffix("s")
            return function(hub, request, **found)
    raise HubError(404, f"no such page: {request.method} {request.path}")


def user_of(hub, request) -> str | None:
    """The user of the token, None without one; Xet's own tokens are looked at by its routes."""
    if not request.token or request.token in hub.cas.grants:
        return None
    if request.token not in hub.tokens:
        raise HubError(401, "Invalid credentials in Authorization header")
    return hub.tokens[request.token]


def signed_in(request) -> str:
    if request.user is None:
        raise HubError(401, "Invalid username or password.")
    return request.user


def may_write_to(hub, user: str | None, namespace: str) -> bool:
    return user is not None and (user == namespace or namespace in hub.users[user])


def readable(hub, request, kind: str, name: str) -> Repo:
    repo = hub.repos.get((kind, name))
    if repo is not None and (not repo.private or may_write_to(hub, request.user, repo.owner)):
        return repo
    # The real Hub does not tell a missing repo from one that is none of the caller's business.
    if request.user is None:
        raise HubError(401, "Invalid username or password.", "RepoNotFound")
    raise HubError(404, "Repository not found", "RepoNotFound")


def writable(hub, request, kind: str, name: str, ref: str | None = None) -> Repo:
    """The repo, if the user may write to it, or to this pull request because the user opened it."""
    repo, user = readable(hub, request, kind, name), signed_in(request)
    own_pulls = {f"refs/pr/{number}" for number, pull in repo.pulls.items() if pull["author"] == user}
    if ref not in own_pulls and not may_write_to(hub, user, repo.owner):
        raise HubError(403, "Forbidden: you have no write access to this repo")
    return repo


def committable(hub, request, kind, name, revision) -> Repo:
    """The repo, for one who may commit to this revision; a pull request is open to all who can read."""
    if request.says("create_pr") and request.user is not None:
        return readable(hub, request, kind, name)
    return writable(hub, request, kind, name, revision)
