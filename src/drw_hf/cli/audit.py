"""Looking for keys that lie open in a repository."""

import json
from typing import Annotated

import typer

from . import options as shared
from .output import DETECTED


def audit(
    repo_id: Annotated[str, typer.Argument(help="The repository, as in me/model.", metavar="REPO")],
    repo_type: Annotated[shared.RepoType, typer.Option(help="What it holds.")] = shared.RepoType.model,
    as_json: shared.AsJson = False,
) -> None:
    """Say whether a key lies open in a repository, in any revision of its history, and what to do.

    Looks at every commit that a branch, a tag or a pull request leads to. Exits with 0 if nothing lies open to others
    (a plain key in a private repository is reported as "at risk"), 3 if something does.

    \b
    Example: drw-hf audit me/protected
    """
    from .. import hub

    found = hub.audit(repo_id, repo_type=repo_type.value, progress=not as_json)
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))
    if found.status == "open":
        raise typer.Exit(DETECTED)
