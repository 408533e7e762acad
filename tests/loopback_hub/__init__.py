"""A Hugging Face Hub on loopback, for tests: the real ``huggingface_hub`` client talks to it over HTTP.

It is a stand-in, written from what the client sends and expects: users and tokens, private repos, commits, branches,
tags, pull requests, LFS and Xet storage, and faults on demand. It is not the Hub's own software, keeps everything in
memory, and does not render, scan, run Spaces or bill. huggingface.co itself is never contacted: what passes here shows
that our code and the client agree, not that the real service answers the same in every corner.
"""

from .messages import Request
from .repos import Blob, Commit, Repo
from .server import LoopbackHub

__all__ = ["Blob", "Commit", "LoopbackHub", "Repo", "Request"]
