"""Looking for keys that lie open in a repository."""

from typing import Annotated

import typer

from . import options as shared
from .output import DETECTED, DONE, Outcome, prints_outcome


@prints_outcome
def audit(
    repo_id: Annotated[str, typer.Argument(help="The repository, as in me/model.", metavar="REPO")],
    repo_type: Annotated[shared.RepoType, typer.Option(help="What it holds.")] = "model",
    as_json: shared.AsJson = False,
) -> Outcome:
    """Say whether a key lies open in a repository, in any revision of its history, and what to do.

    Looks at every commit that a branch, a tag or a pull request leads to. Exits with 0 if nothing lies open to others
    (a plain key in a private repository is reported as "at risk"), 3 if something does.

    \b
    Example: drw-hf audit me/protected
    """
    from .. import hub

    found = hub.audit(repo_id, repo_type=repo_type, progress=not as_json)
    return Outcome(found.to_dict(), str(found), DETECTED if found.status == "open" else DONE)
