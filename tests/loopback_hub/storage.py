"""How content arrives: commits, LFS, and Xet (whose formats are in xet.py)."""

import base64
import hashlib
import json
import math
import re
import secrets
import time
from dataclasses import dataclass, field

from .api import open_pull
from .messages import Answer, HubError, in_range, reply
from .repos import LFS_ENDINGS, Repo, changed
from .routing import API, PLACE, committable, readable, route, signed_in

LFS_ABOVE = 10 * 2**20


@dataclass
class Upload:
    """Leave to put one LFS object into one repo, by an address that needs no token."""

    repo: Repo
    oid: str
    size: int
    parts: dict[int, bytes] = field(default_factory=dict)


# --- commits


@route("POST", rf"{API}/preupload/(?P<revision>[^/]+)")
def preupload(hub, request, kind, name, revision):
    repo = committable(hub, request, kind, name, revision)
    present = repo.resolve(revision).blobs
    answers = []
    for file in request.json["files"]:
        path = file["path"]
        hub.keep(f"{repo.path}: sample of {path}", base64.b64decode(file["sample"]))
        mode = "lfs" if path.endswith(LFS_ENDINGS) or file["size"] > LFS_ABOVE else "regular"
        blob = present.get(path)
        # The client compares this with its own file: sha256 for LFS, the id in git for the rest.
        oid = blob.etag if blob is not None and blob.lfs == (mode == "lfs") else None
        answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, **({"oid": oid} if oid else {})})
    return reply({"files": answers})


@route("POST", rf"{API}/commit/(?P<revision>[^/]+)")
def commit(hub, request, kind, name, revision):
    repo = committable(hub, request, kind, name, revision)
    lines = [json.loads(line) for line in request.body.splitlines() if line.strip()]
    header = next(line["value"] for line in lines if line["key"] == "header")
    operations = [line for line in lines if line["key"] != "header"]
    for operation in operations:  # before anything can be refused: refused bytes arrived too
        if operation["key"] == "file":
            hub.keep(f"{repo.path}: {operation['value']['path']}", base64.b64decode(operation["value"]["content"]))
    head, ref = repo.resolve(revision), repo.ref(revision)
    if ref is None or ref.startswith("refs/tags/"):
        raise HubError(404, f"Not a branch: {revision}", "RevisionNotFound")
    if not head.sha.startswith(header.get("parentCommit", head.sha)):
        raise HubError(412, "A commit has happened since. Please refresh and try again.")
    blobs = changed(repo, head.blobs, operations)
    pull = {}
    if request.says("create_pr"):
        number = open_pull(hub, request, repo, header["summary"], head)
        ref = f"refs/pr/{number}"
        pull = {"pullRequestUrl": f"{hub.url}/{repo.path}/discussions/{number}"}
    text = {"title": header["summary"], "description": header.get("description", "")}
    hub.keep(f"{repo.path}: commit message", f"{text['title']}\n{text['description']}")
    made = repo.commit(ref, blobs, **text, author=request.user, date=hub.clock(), parent=head.sha)
    url = f"{hub.url}/{repo.path}/commit/{made.sha}"
    return reply({"success": True, "commitOid": made.sha, "commitUrl": url, "hookOutput": "", **pull})


# --- LFS


@route("POST", rf"{PLACE}\.git/info/lfs/objects/batch")
def lfs_batch(hub, request, kind, name):
    # Who can read may upload: it could be for a pull request, of which this call says nothing.
    repo = readable(hub, request, kind, name)
    signed_in(request)
    objects = []
    for asked in request.json["objects"]:
        oid, size = asked["oid"], asked["size"]
        answer = {"oid": oid, "size": size}
        if oid not in repo.objects:
            ticket = secrets.token_hex(16)
            hub.uploads[ticket] = Upload(repo, oid, size)
            url = f"{hub.url}/lfs-upload/{ticket}"
            upload = {"href": url}
            if size > hub.multipart_above:
                parts = range(1, math.ceil(size / hub.multipart_above) + 1)
                urls = {str(part): f"{url}/{part}" for part in parts}
                upload["header"] = {"chunk_size": str(hub.multipart_above), **urls}
            verify = {"href": f"{hub.url}/{repo.path}.git/info/lfs/objects/verify"}
            answer["actions"] = {"upload": upload, "verify": verify}
        objects.append(answer)
    return reply({"transfer": "basic", "objects": objects})


@route("PUT", r"/lfs-upload/(?P<ticket>\w+)(?:/(?P<part>\d+))?")
def lfs_put(hub, request, ticket, part):
    upload = _upload(hub, ticket)
    hub.keep(f"{upload.repo.path}: LFS object {upload.oid}", request.body)
    if part is None:
        _store(upload, request.body)
    else:
        upload.parts[int(part)] = request.body
    return reply({}, headers={"ETag": f'"{hashlib.md5(request.body).hexdigest()}"'})


@route("POST", r"/lfs-upload/(?P<ticket>\w+)")
def lfs_complete(hub, request, ticket):
    upload = _upload(hub, ticket)
    _store(upload, b"".join(upload.parts.get(part["partNumber"], b"") for part in request.json["parts"]))
    return reply({})


@route("POST", rf"{PLACE}\.git/info/lfs/objects/verify")
def lfs_verify(hub, request, kind, name):
    repo, asked = readable(hub, request, kind, name), request.json
    if len(repo.objects.get(asked["oid"], b"")) != asked["size"]:
        raise HubError(404, f"no object {asked['oid']} of {asked['size']} bytes")
    return reply({})


def _upload(hub, ticket: str) -> Upload:
    if ticket not in hub.uploads:
        raise HubError(403, "this upload address is not valid")
    return hub.uploads[ticket]


def _store(upload: Upload, content: bytes):
    if hashlib.sha256(content).hexdigest() != upload.oid or len(content) != upload.size:
        raise HubError(400, f"what arrived is not the object {upload.oid} of {upload.size} bytes")
    upload.repo.objects[upload.oid] = content


# --- Xet: tokens here, storage in xet.py


@route("GET", rf"{API}/xet-(?P<right>read|write)-token/(?P<revision>[^/]+)")
def xet_token(hub, request, kind, name, right, revision):
    if not hub.xet:
        raise HubError(404, "this Hub has no Xet storage")
    if right == "read":
        repo = readable(hub, request, kind, name)
    else:
        repo = committable(hub, request, kind, name, revision)
    token, expiry = hub.cas.grant(repo, right), int(time.time()) + 3600
    headers = {"X-Xet-Cas-Url": hub.url, "X-Xet-Access-Token": token, "X-Xet-Token-Expiration": str(expiry)}
    return reply({"casUrl": hub.url, "accessToken": token, "exp": expiry}, headers=headers)


@route("POST", r"/v1/xorbs/default/(?P<xorb>\w+)")
def put_xorb(hub, request, xorb):
    repo = hub.cas.granted(request, "write")
    hub.keep(f"{repo.path}: xorb {xorb}", hub.cas.add_xorb(xorb, request.body))
    return reply({"was_inserted": True})


@route("POST", r"(?:/v1)?/shards")
def put_shard(hub, request):
    repo = hub.cas.granted(request, "write")
    for sha256, (xet_hash, content) in hub.cas.add_shard(request.body).items():
        hub.keep(f"{repo.path}: Xet file {sha256}", content)
        repo.objects[sha256], repo.xet_hashes[sha256] = content, xet_hash
    return reply({"result": 1})


@route("GET", r"/v1/reconstructions/(?P<file>\w+)")
def reconstruct(hub, request, file):
    repo = hub.cas.granted(request, "read")
    if file not in repo.xet_hashes.values():
        raise HubError(404, "no such file")
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range") or "bytes=0-")
    return reply(hub.cas.reconstruction(file, hub.url, int(asked[1]), int(asked[2]) if asked[2] else None))


@route("GET", r"/xorb-data/(?P<ticket>\w+)")
def get_xorb(hub, request, ticket):
    if ticket not in hub.cas.tickets:
        raise HubError(403, "this address is not valid")
    return Answer(*in_range(request.headers.get("Range"), hub.cas.xorbs[hub.cas.tickets[ticket]].raw))
