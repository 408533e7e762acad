"""Auditing a repository for people and for scripts."""

import json

import typer

from ..hub import audit

OPEN = 3  # the exit code that says: something was found


def run(repo_id: str, *, repo_type: str, as_json: bool) -> None:
    """Print what :func:`drw_hf.hub.audit` finds, and exit with 3 where a secret lies open."""
    found = audit(repo_id, repo_type=repo_type, progress=not as_json)
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))
    if found.status == "open":
        raise typer.Exit(OPEN)
