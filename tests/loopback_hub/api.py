"""Users, repos, refs, history, pull requests and files."""

import hashlib
import json
import re
from datetime import UTC, datetime
from itertools import pairwise
from urllib.parse import parse_qs

import yaml

from .messages import Answer, HubError, in_range, reply
from .repos import GITATTRIBUTES, Blob, Commit, Repo
from .routing import API, KINDS, may_write_to, readable, route, signed_in, writable

# --- users and repos


@route("GET", "/api/whoami-v2")
def whoami(hub, request):
    name = signed_in(request)
    orgs = [{"type": "org", "name": org, "fullname": org, "roleInOrg": "write"} for org in hub.users[name]]
    token = {"displayName": "test", "role": "write", "createdAt": _date(datetime.now(UTC))}
    auth = {"type": "access_token", "accessToken": token}
    return reply({"type": "user", "id": name, "name": name, "fullname": name, "orgs": orgs, "auth": auth})


@route("POST", "/api/repos/create")
def create_repo(hub, request):
    asked = request.json
    kind, name = _asked_repo(hub, request, asked)
    address = {"name": name, "id": name}
    if (kind, name) in hub.repos:
        url = f"{hub.url}/{hub.repos[kind, name].path}"
        return reply({"error": f"You already created this {kind} repo: {name}", "url": url, **address}, 409)
    private = asked.get("visibility", "public") != "public"
    repo = hub.repos[kind, name] = Repo(kind, name, private, hub.clock(), sdk=asked.get("sdk"))
    attributes = {".gitattributes": Blob(GITATTRIBUTES)}
    repo.commit("refs/heads/main", attributes, "initial commit", author=request.user, date=hub.clock())
    return reply({"url": f"{hub.url}/{repo.path}", **address})


@route("DELETE", "/api/repos/delete")
def delete_repo(hub, request):
    kind, name = _asked_repo(hub, request, request.json)
    writable(hub, request, kind, name)
    del hub.repos[kind, name]
    return reply({})


def _asked_repo(hub, request, asked: dict) -> tuple[str, str]:
    user = signed_in(request)
    namespace, kind = asked.get("organization") or user, asked.get("type") or "model"
    if not may_write_to(hub, user, namespace):
        raise HubError(
            403, f"You don't have the rights to create or delete a {kind} under the namespace {namespace!r}"
        )
    return kind, f"{namespace}/{asked['name']}"


@route("PUT", rf"{API}/settings")
def change_settings(hub, request, kind, name):
    repo, asked = writable(hub, request, kind, name), request.json
    if "visibility" in asked:
        repo.private = asked["visibility"] != "public"
    return reply({"private": repo.private})


@route("POST", "/api/validate-yaml")
def validate_yaml(hub, request):
    hub.keep("validate-yaml", request.json["content"])
    try:
        _card_data(request.json["content"].encode())
    except yaml.YAMLError as error:
        return reply({"errors": [{"message": str(error)}], "warnings": []}, 400)
    return reply({"errors": [], "warnings": []})


@route("GET", rf"/api/{KINDS}")
def list_repos(hub, request, kind):
    author, search = request.query.get("author", [None])[0], request.query.get("search", [""])[0]
    repos = [
        repo
        for repo in hub.repos.values()
        if repo.kind == kind
        and author in (None, repo.owner)
        and search in repo.name
        and (not repo.private or may_write_to(hub, request.user, repo.owner))
    ]
    return reply([_info(repo, repo.resolve("main"), False) for repo in repos])


@route("GET", rf"/api/{KINDS}/(?P<name>[^/]+)")
@route("GET", rf"{API}(?:/revision/(?P<revision>[^/]+))?")
def repo_info(hub, request, kind, name, revision=None):
    repo = readable(hub, request, kind, name)
    return reply(_info(repo, repo.resolve(revision or "main"), request.says("blobs")))


@route("GET", rf"{API}/auth-check")
def auth_check(hub, request, kind, name):
    readable(hub, request, kind, name)
    return reply({})


def _info(repo: Repo, commit: Commit, blobs: bool) -> dict:
    card = _card_data(commit.files.get("README.md", b"")) or {}
    siblings = [{"rfilename": path} for path in commit.blobs]
    if blobs:
        for sibling in siblings:
            entry = _entry(repo, sibling["rfilename"], commit.blobs[sibling["rfilename"]])
            sibling |= {"size": entry["size"], "blobId": entry["oid"]}
            if "lfs" in entry:
                sibling["lfs"] = {"sha256": entry["lfs"]["oid"], **entry["lfs"]}
    card_fields = {key: card[key] for key in ("library_name", "pipeline_tag") if key in card}
    return {
        "_id": repo.path,
        "id": repo.name,
        "modelId": repo.name,
        "author": repo.owner,
        "sha": commit.sha,
        "lastModified": _date(commit.date),
        "createdAt": _date(repo.created),
        "private": repo.private,
        "disabled": False,
        "gated": False,
        "downloads": 0,
        "likes": 0,
        "tags": card.get("tags") or [],
        "cardData": card,
        "siblings": siblings,
        **({"sdk": repo.sdk} if repo.kind == "space" else {}),
        **card_fields,
    }


def _card_data(readme: bytes) -> dict | None:
    front = re.match(r"---\r?\n(.*?)\r?\n---", readme.decode(errors="replace"), re.DOTALL)
    return yaml.safe_load(front[1]) if front else None


def _date(date: datetime) -> str:
    return date.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


# --- refs and history


@route("GET", rf"{API}/refs")
def list_refs(hub, request, kind, name):
    repo = readable(hub, request, kind, name)
    groups = {"refs/heads/": "branches", "refs/tags/": "tags", "refs/pr/": "pullRequests"}
    listed = {"branches": [], "tags": [], "pullRequests": [], "converts": []}
    for ref, sha in repo.refs.items():
        prefix = next(prefix for prefix in groups if ref.startswith(prefix))
        short = ref if prefix == "refs/pr/" else ref.removeprefix(prefix)
        listed[groups[prefix]].append({"name": short, "ref": ref, "targetCommit": sha})
    return reply(listed)


@route("POST", rf"{API}/branch/(?P<branch>[^/]+)")
def create_branch(hub, request, kind, name, branch):
    repo, ref = writable(hub, request, kind, name), f"refs/heads/{branch}"
    if ref in repo.refs:
        raise HubError(409, f"Reference already exists: {ref}")
    repo.refs[ref] = repo.resolve(request.json.get("startingPoint", "main")).sha
    return reply({})


@route("POST", rf"{API}/tag/(?P<revision>[^/]+)")
def create_tag(hub, request, kind, name, revision):
    repo, ref = writable(hub, request, kind, name), f"refs/tags/{request.json['tag']}"
    if ref in repo.refs:
        raise HubError(409, f"Tag reference exists already: {ref}")
    hub.keep(f"{repo.path}: tag", json.dumps(request.json, ensure_ascii=False))
    repo.refs[ref] = repo.resolve(revision).sha
    return reply({})


@route("DELETE", rf"{API}/(?P<what>branch|tag)/(?P<ref>[^/]+)")
def delete_ref(hub, request, kind, name, what, ref):
    repo = writable(hub, request, kind, name)
    full = f"refs/{'heads' if what == 'branch' else 'tags'}/{ref}"
    if full == "refs/heads/main":
        raise HubError(403, "Cannot delete the default branch")
    if full not in repo.refs:
        raise HubError(404, f"Reference does not exist: {full}", "RevisionNotFound")
    del repo.refs[full]
    repo.forget_unreachable()
    return reply({})


@route("GET", rf"{API}/commits/(?P<revision>[^/]+)")
def list_commits(hub, request, kind, name, revision):
    log = readable(hub, request, kind, name).log(revision)
    page = int(request.query.get("p", ["0"])[0])
    size = int(request.query.get("limit", [hub.page_size])[0])
    listed = [
        {
            "id": commit.sha,
            "title": commit.title,
            "message": commit.description,
            "date": _date(commit.date),
            "authors": [{"user": commit.author}],
        }
        for commit in log[page * size : (page + 1) * size]
    ]
    following = f'<{hub.url}{request.path}?p={page + 1}&limit={size}>; rel="next"'
    more = {"Link": following} if (page + 1) * size < len(log) else {}
    return reply(listed, headers={"X-Total-Count": str(len(log)), **more})


@route("POST", rf"{API}/super-squash/(?P<revision>[^/]+)")
def squash(hub, request, kind, name, revision):
    repo = writable(hub, request, kind, name)
    head, ref = repo.resolve(revision), repo.ref(revision)
    if ref is None or ref.startswith("refs/tags/"):
        raise HubError(404, f"Not a branch: {revision}", "RevisionNotFound")
    repo.commit(ref, head.blobs, request.json["message"], author=request.user, date=hub.clock())
    repo.forget_unreachable()
    return reply({})


# --- pull requests


@route("POST", rf"{API}/discussions")
def open_discussion(hub, request, kind, name):
    repo, asked = readable(hub, request, kind, name), request.json
    signed_in(request)
    if not asked.get("pullRequest"):
        raise HubError(400, "this Hub keeps pull requests, not discussions")
    number = open_pull(hub, request, repo, asked["title"], repo.resolve("main"))
    return reply({"num": number, "pullRequest": True})


@route("GET", rf"{API}/discussions")
def list_discussions(hub, request, kind, name):
    repo = readable(hub, request, kind, name)
    pulls = [_pull_details(repo, number) for number in sorted(repo.pulls, reverse=True)]
    return reply({"discussions": pulls, "count": len(pulls), "start": 0})


@route("GET", rf"{API}/discussions/(?P<number>\d+)")
def show_discussion(hub, request, kind, name, number):
    repo = readable(hub, request, kind, name)
    if int(number) not in repo.pulls:
        raise HubError(404, "Discussion not found")
    return reply(_pull_details(repo, int(number)))


@route("POST", rf"{API}/discussions/(?P<number>\d+)/merge")
def merge(hub, request, kind, name, number):
    repo = writable(hub, request, kind, name)
    pull, head, main = repo.pulls[int(number)], repo.resolve(f"refs/pr/{number}"), repo.resolve("main")
    base, blobs = repo.history[pull["base"]].blobs, dict(main.blobs)
    for path in base.keys() - head.blobs.keys():
        blobs.pop(path, None)
    blobs |= {path: blob for path, blob in head.blobs.items() if base.get(path) != blob}
    repo.commit("refs/heads/main", blobs, pull["title"], author=request.user, date=hub.clock(), parent=main.sha)
    pull["status"] = "merged"
    return reply({})


def open_pull(hub, request, repo: Repo, title: str, base: Commit) -> int:
    number = len(repo.pulls) + 1
    repo.pulls[number] = {
        "title": title,
        "author": request.user,
        "status": "draft",
        "base": base.sha,
        "created": hub.clock(),
    }
    repo.refs[f"refs/pr/{number}"] = base.sha
    return number


def _pull_details(repo: Repo, number: int) -> dict:
    pull = repo.pulls[number]
    return {
        "num": number,
        "title": pull["title"],
        "author": {"name": pull["author"]},
        "createdAt": _date(pull["created"]),
        "status": pull["status"],
        "repo": {"name": repo.name, "type": repo.kind},
        "isPullRequest": True,
        "events": [],
        "changes": {"base": "refs/heads/main"},
        "filesWithConflicts": [],
    }


# --- files


@route("GET", rf"{API}/tree/(?P<revision>[^/]+)(?:/(?P<path>.+))?")
def tree(hub, request, kind, name, revision, path):
    repo = readable(hub, request, kind, name)
    commit, folder = repo.resolve(revision), f"{path.strip('/')}/" if path else ""
    inside = {name: blob for name, blob in commit.blobs.items() if name.startswith(folder)}
    if folder and not inside:
        raise HubError(404, f"{path} does not exist on {revision}", "EntryNotFound")
    recursive = request.says("recursive")
    folders = {
        folder + "/".join(parts[:depth])
        for parts in (name.removeprefix(folder).split("/") for name in inside)
        for depth in range(1, len(parts) if recursive else min(len(parts), 2))
    }
    files = {name: blob for name, blob in inside.items() if recursive or "/" not in name.removeprefix(folder)}
    entries = [_folder(name) for name in folders] + [_entry(repo, name, blob) for name, blob in files.items()]
    return reply(_expanded(sorted(entries, key=lambda entry: entry["path"]), repo, commit, request))


@route("POST", rf"{API}/paths-info/(?P<revision>[^/]+)")
def paths_info(hub, request, kind, name, revision):
    repo = readable(hub, request, kind, name)
    commit, form = repo.resolve(revision), parse_qs(request.body.decode())
    paths = form.get("paths", [])
    folders = {path for path in paths if any(name.startswith(f"{path.rstrip('/')}/") for name in commit.blobs)}
    entries = [_entry(repo, path, commit.blobs[path]) for path in paths if path in commit.blobs]
    request.query |= form
    return reply(_expanded([*entries, *map(_folder, folders)], repo, commit, request))


def _expanded(entries: list[dict], repo: Repo, commit: Commit, request) -> list[dict]:
    if request.says("expand"):
        log = repo.log(commit.sha)
        for entry in entries:
            last = _last_change(log, entry["path"])
            entry["lastCommit"] = {"id": last.sha, "title": last.title, "date": _date(last.date)}
    return entries


def _last_change(log: list[Commit], path: str) -> Commit:
    def content(commit):
        return {name: blob.oid for name, blob in commit.blobs.items() if name == path or name.startswith(f"{path}/")}

    for newer, older in pairwise(log):
        if content(newer) != content(older):
            return newer
    return log[-1]


def _entry(repo: Repo, path: str, blob: Blob) -> dict:
    size = len(blob.content)
    entry = {"type": "file", "path": path, "size": size, "oid": blob.oid}
    if blob.lfs:
        entry["lfs"] = {"oid": blob.sha256, "size": size, "pointerSize": len(blob.in_git)}
        if blob.sha256 in repo.xet_hashes:
            entry["xetHash"] = repo.xet_hashes[blob.sha256]
    return entry


def _folder(path: str) -> dict:
    return {"type": "directory", "path": path, "size": 0, "oid": hashlib.sha1(path.encode()).hexdigest()}


@route(
    "GET",
    r"/(?:(?P<kind>datasets|spaces)/)?(?P<name>[^/]+/[^/]+|[^/]+)/(?:resolve|raw)/(?P<revision>[^/]+)/(?P<path>.+)",
)
def resolve(hub, request, kind, name, revision, path):
    repo = readable(hub, request, kind, name)
    commit = repo.resolve(revision)
    headers = {"X-Repo-Commit": commit.sha}
    if path not in commit.blobs:
        raise HubError(404, "Entry not found", "EntryNotFound", headers)
    blob = commit.blobs[path]
    headers |= {"ETag": f'"{blob.etag}"', "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
    if blob.lfs:
        headers |= {"X-Linked-Etag": f'"{blob.etag}"', "X-Linked-Size": str(len(blob.content))}
        if hub.xet and blob.sha256 in repo.xet_hashes:
            renew = f"{hub.url}/api/{kind}s/{name}/xet-read-token/{commit.sha}"
            headers |= {"X-Xet-Hash": repo.xet_hashes[blob.sha256], "Link": f'<{renew}>; rel="xet-auth"'}
    status, content, more = in_range(request.headers.get("Range"), blob.content)
    return Answer(status, content, headers | more)
