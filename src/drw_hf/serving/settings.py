"""What a service is made of, by names: as the command line has it, and as workers get it."""

import contextlib
import dataclasses
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from ..asking.models import load_model, load_tokenizer
from ..errors import KeyFileError
from ..keys.choices import LabelKind, Task
from ..keys.frames import forgets_locals
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing, load_key_or_ring
from ..reading.files import LARGEST_DOCUMENT, parse_json, read_within
from .app import create_app
from .limits import Limits


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """A model and how it is served; ``model`` is a folder or a Hub id, of a plain or of a protected model."""

    model: str
    task: Task | None = None
    label_kind: LabelKind | None = None
    digits: int | None = None
    log: str | None = None
    log_texts: bool = True
    log_users: bool = True
    metrics_port: int | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, repr=False)
class ServiceSecrets:
    """What a service knows that nobody else may: never shown, and never on a command line."""

    passphrase: str | None = None
    api_token: str | None = None
    admin_token: str | None = None


@forgets_locals
def app_from(settings: ServiceSettings, secrets: ServiceSecrets, key: WatermarkKey | KeyRing) -> Starlette:
    """The app of a service."""
    given = {"label_kind": settings.label_kind, "digits": settings.digits}
    model = load_model(settings.model, task=settings.task, key=key, **given)
    return create_app(
        model,
        load_tokenizer(settings.model),
        log=settings.log,
        log_texts=settings.log_texts,
        log_users=settings.log_users,
        api_token=secrets.api_token,
        admin_token=secrets.admin_token,
        limits=settings.limits,
    )


# -- to a worker and from there


@forgets_locals
def hand_over(settings: ServiceSettings, secrets: ServiceSecrets, place: tuple[str, str], descriptors: Any) -> Path:
    """Write what a worker needs into a file that its owner alone can read; :func:`take_over` removes it."""
    document = {
        "settings": dataclasses.asdict(settings),
        "secrets": vars(secrets),
        "place": place,
        "descriptors": descriptors,
    }
    descriptor, name = tempfile.mkstemp(prefix="drw-hf-serve-", dir=_memory())  # of mode 0600
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file)
    return Path(name)


@forgets_locals
def take_over(path: Path) -> tuple[ServiceSettings, ServiceSecrets, WatermarkKey | KeyRing, Any]:
    """What :func:`hand_over` wrote, with the key opened; the file is gone before anything else happens."""
    try:
        content = read_within(path, LARGEST_DOCUMENT, KeyFileError)
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
    document = parse_json(content)
    if not isinstance(document, dict):
        raise KeyFileError(f"{path} is not what drw-hf serve writes for its workers; start drw-hf serve")
    limits = Limits(**document["settings"].pop("limits"))
    secrets = ServiceSecrets(**document["secrets"])
    name, subfolder = document["place"]
    key = load_key_or_ring(name, secrets.passphrase, subfolder=subfolder)
    return ServiceSettings(**document["settings"], limits=limits), secrets, key, document["descriptors"]


def _memory() -> str | None:
    """A place for files that never reach a disk, where there is one."""
    place = "/dev/shm"
    return place if os.path.isdir(place) and os.access(place, os.W_OK) else None
