"""What is read of others, one target each: a sound file is altered, read and used, and may fail with our errors alone.

A target is made once, in a folder of its own, and run with a source of choices. Any error that it raises but a
:class:`~drw_hf.errors.DrwError` is a find.
"""

import contextlib
import json
import shutil
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from drw_hf import KeyRing, QueryLog, WatermarkedConfig, WatermarkKey
from drw_hf.asking.log_intervals import LogInterval
from drw_hf.asking.log_lines import link_of
from drw_hf.detection import DetectionResult, Probe
from drw_hf.detection.verdict import Corrections, verdict_on
from drw_hf.errors import DrwError
from drw_hf.evidence import verify_evidence
from drw_hf.evidence.commitments import CommitmentRecord
from drw_hf.evidence.logs import LogContext, check_log_age
from drw_hf.hub.auditing import classify
from drw_hf.hub.pull import Pointer
from drw_hf.keys import UnseasonedKey, files, sealing
from drw_hf.keys.merkle import UserProof
from drw_hf.planning import Rehearsal
from drw_hf.tracing import Identification
from drw_hf.watermark.held_key import checked_key

from .mutations import Choices, altered_arrays, altered_bytes, altered_document, packed

FROZEN = Path(__file__).parents[1] / "frozen"
PASSPHRASE = "correct horse"
Run = Callable[[Choices], None]
TARGETS: dict[str, Callable[[Path], Run]] = {}


def target(make: Callable[[Path], Run]) -> Callable[[Path], Run]:
    """Register a function that makes a target in a folder."""
    return TARGETS.setdefault(make.__name__.replace("_", "-"), make)


def survives(run: Run, choices: Choices) -> bool:
    """Run a target once: whether what it read was taken."""
    try:
        run(choices)
    except DrwError:
        return False
    return True


def written(path: Path, document: Any, choices: Choices) -> None:
    """Write an altered document, and once in a while alter its bytes as well."""
    content = json.dumps(document).encode()
    path.write_bytes(content if choices.below(8) else altered_bytes(content, choices))


# -- keys


def use_key(key: WatermarkKey) -> None:
    assert len(key.commitment()) == 64 and key.fingerprint in repr(key)
    key.entries(np.arange(min(key.vocab_size, 8)))
    key.rule_scores()
    key.to_files()


def use_ring(ring: KeyRing) -> None:
    use_key(ring.key_for("customer-7"))
    for declaration in ring.declarations:
        f"{declaration.count:,} {declaration.declared_at}"
    ring.user_of(ring.token_for("customer-7"))
    ring.declare(["a", "b"]).to_files()


def signed(kind: files.FileKind, content: files.Content) -> dict[str, Any]:
    """A plain file's document as anybody can make it, with a digest that is right."""
    envelope = {
        "format": kind.format,
        "version": kind.version,
        "sealed": False,
        **content.shown,
        "key": content.fields,
    }
    return {**envelope, "digest": files._digest(sealing.canonical(envelope))}


def kept(kept_as: Any, use: Callable[[Any], None], folder: Path, frozen: Path, seal: bool) -> Run:
    """A key or ring: its fields altered by somebody who can sign or seal them, or its file by anybody."""
    kind, passphrase = kept_as.kind, PASSPHRASE if seal else None
    shutil.copytree(frozen, folder, dirs_exist_ok=True)
    for path in folder.iterdir():
        path.chmod(0o600)
    content = files.read(folder, kind, None)
    own = kept_as.from_pretrained(folder)
    sound = {name: (folder / name).read_bytes() for name in [kind.arrays_file] if content.arrays}
    arrays_digest = files._digest(sound[kind.arrays_file]) if sound else None
    fields = {**content.fields, "arrays_digest": arrays_digest}
    with cheap_sealing():
        plain_or_sealed = json.loads(own.to_files(passphrase=passphrase)[kind.file])

    def run(choices: Choices) -> None:
        path = folder / kind.file
        for name, written_before in sound.items():
            (folder / name).write_bytes(written_before)
        how = choices.below(8)
        if how == 0:
            written(path, altered_document(plain_or_sealed, choices), choices)
        elif how == 1:
            path.write_bytes(altered_bytes(json.dumps(plain_or_sealed).encode(), choices))
        else:
            changed = fields
            if how == 2 and sound:
                arrays = altered_bytes(sound[kind.arrays_file], choices)
                (folder / kind.arrays_file).write_bytes(arrays)
                changed = {**fields, "arrays_digest": files._digest(arrays)}
            elif how == 3 and sound:
                arrays = with_header_altered(sound[kind.arrays_file], choices)
                (folder / kind.arrays_file).write_bytes(arrays)
                changed = {**fields, "arrays_digest": files._digest(arrays)}
            else:
                changed = altered_document(fields, choices)
            shown = shown_for(kept_as, changed, content)
            if seal:
                envelope = {"format": kind.format, "version": kind.version, "sealed": True, **shown}
                path.write_text(json.dumps(sealing.seal(sealing.canonical(changed), PASSPHRASE, envelope)))
            else:
                path.write_text(json.dumps(signed(kind, files.Content(changed, {}, shown))))
        use(kept_as.from_pretrained(folder, passphrase=passphrase))

    def cheaply(choices: Choices) -> None:
        with cheap_sealing():
            run(choices)

    return cheaply


def shown_for(kept_as: Any, fields: Any, content: files.Content) -> dict[str, Any]:
    """The commitment that belongs to altered fields, where there is one: a forger would write that."""
    inner = {name: value for name, value in fields.items() if name != "arrays_digest"}
    with contextlib.suppress(Exception):  # whether it fails is for the loading to show
        made = kept_as._from_content(files.Content(inner, content.arrays, content.shown))
        return content.shown if made is None else made._shown()
    return content.shown


def with_header_altered(arrays: bytes, choices: Choices) -> bytes:
    """A safetensors file whose header says something else."""
    end = 8 + struct.unpack("<Q", arrays[:8])[0]
    header = json.dumps(altered_document(json.loads(arrays[8:end]), choices)).encode()
    return struct.pack("<Q", len(header)) + header + arrays[end:]


@contextlib.contextmanager
def cheap_sealing():
    """scrypt at the lowest cost; a file that asks for more than a little is refused, as one beyond 1 GiB would be."""
    before = sealing.COST, sealing._MAX_COST
    sealing.COST, sealing._MAX_COST = 2, 2**4
    try:
        yield
    finally:
        sealing.COST, sealing._MAX_COST = before


@target
def key(folder: Path) -> Run:
    return kept(WatermarkKey, use_key, folder, FROZEN / "keys" / "plain", seal=False)


@target
def sealed_key(folder: Path) -> Run:
    return kept(WatermarkKey, use_key, folder, FROZEN / "keys" / "keyed-rule", seal=True)


@target
def tilt_key(folder: Path) -> Run:
    return kept(WatermarkKey, use_key, folder, FROZEN / "tilt-evidence" / "sentences-key", seal=False)


@target
def arrays_key(folder: Path) -> Run:
    return kept(WatermarkKey, use_key, folder, FROZEN / "keys" / "arrays", seal=False)


@target
def ring(folder: Path) -> Run:
    return kept(KeyRing, use_ring, folder, FROZEN / "rings" / "plain", seal=False)


@target
def sealed_ring(folder: Path) -> Run:
    return kept(KeyRing, use_ring, folder, FROZEN / "rings" / "plain", seal=True)


@target
def seasoned_key(folder: Path) -> Run:
    return kept(WatermarkKey, use_key, folder, FROZEN / "seasoned" / "plain", seal=False)


@target
def unseasoned_key(folder: Path) -> Run:
    def use(waiting: UnseasonedKey) -> None:
        assert waiting.fingerprint in repr(waiting) and str(waiting.terms.round) and waiting.terms.round.address
        waiting.to_files()

    return kept(UnseasonedKey, use, folder, FROZEN / "seasoned" / "plain", seal=False)


@target
def seasoned_ring(folder: Path) -> Run:
    def use(ring: KeyRing) -> None:
        ring.key_for("customer-7")
        ring.rotate().declare(["a", "b"]).to_files()

    return kept(KeyRing, use, folder, FROZEN / "seasoned" / "ring", seal=False)


@target
def round_value(folder: Path) -> Run:
    waiting = UnseasonedKey.from_pretrained(FROZEN / "seasoned" / "plain")
    pulse = json.loads((FROZEN.parent / "vectors" / "beacons.json").read_text())["nist"]["pulse"]

    def run(choices: Choices) -> None:
        content = json.dumps(altered_document({"pulse": pulse}, choices)).encode()
        waiting.season(altered_bytes(content, choices) if choices.below(2) else content)

    return run


# -- what is shown to others


@target
def record(folder: Path) -> Run:
    sound = json.loads((FROZEN / "pushed" / "commitment.json").read_text())

    def run(choices: Choices) -> None:
        read = CommitmentRecord.from_dict(altered_document(sound, choices))
        assert read.commitment[:16] in read.explanation and read.claimed_date
        again = json.loads(json.dumps(read.to_dict()))
        assert CommitmentRecord.from_dict(again) == read and (read.timestamp is None) == (read.proven_date is None)

    return run


@target
def proof(folder: Path) -> Run:
    sound, key = (
        json.loads((FROZEN / "rings" / "proof.json").read_text()),
        WatermarkKey.from_pretrained(FROZEN / "keys" / "plain"),
    )
    return lambda choices: UserProof.from_dict(altered_document(sound, choices)).verify(key) and None


@target
def pointer(folder: Path) -> Run:
    sound = json.loads((FROZEN / "pointer" / "drw_key_pointer.json").read_text())

    def run(choices: Choices) -> None:
        written(folder / "drw_key_pointer.json", altered_document(sound, choices), choices)
        read = Pointer.read(folder / "drw_key_pointer.json")
        assert ".." not in read.subfolder.split("/") and len(read.revision) == 40

    return run


@target
def found_in_a_repository(folder: Path) -> Run:
    names = ["keys/sealed/drw_key.json", "keys/arrays-sealed/drw_key.safetensors", "evidence/exact.json"]
    sound = {Path(name).name: (FROZEN / name).read_bytes() for name in names}

    def run(choices: Choices) -> None:
        for name, content in sound.items():
            if name.endswith("json") and choices.below(2):
                content = json.dumps(altered_document(json.loads(content), choices)).encode()
            classify(name, altered_bytes(content, choices) if choices.below(2) else content)

    return run


@target
def config(folder: Path) -> Run:
    key = WatermarkKey.from_pretrained(FROZEN / "protected" / "key", passphrase="correct horse battery staple")
    sound = json.loads((FROZEN / "protected" / "model" / "config.json").read_text())

    def run(choices: Choices) -> None:
        (folder / "config.json").write_text(json.dumps(altered_document(sound, choices)))
        read = WatermarkedConfig.from_pretrained(folder)
        if isinstance(read, WatermarkedConfig):
            checked_key(read, read.task, key, replace_key=False)

    return run


# -- evidence


@target
def probe(folder: Path) -> Run:
    place = FROZEN / "evidence" / "exact-sentences.probe.npz"
    with np.load(place) as archive:
        arrays = {name: archive[name] for name in archive.files}
    key = WatermarkKey.from_pretrained(FROZEN / "evidence" / "sentences-key")
    n = 40  # texts, so that a test of them takes no time
    last = int(arrays["offsets"][n])
    cut = {name: array[:n] for name, array in arrays.items() if name != "fields"}
    cut |= {
        "offsets": arrays["offsets"][: n + 1],
        **{name: arrays[name][:last] for name in ("input_ids", "token_type_ids")},
    }
    sound = json.loads(arrays["fields"].tobytes())

    def as_member(document: Any) -> np.ndarray:
        return np.frombuffer(json.dumps(document).encode(), np.uint8)

    def run(choices: Choices) -> None:
        how = choices.below(4)
        fields = altered_document(sound, choices) if how == 0 else sound
        members: dict[str, Any] = altered_arrays(cut, choices) if how == 1 else dict(cut)
        if how == 2:
            name = list(cut)[choices.below(len(cut))]
            whole = packed({name: cut[name]})
            members[name] = altered_bytes(np.lib.format.magic(1, 0) + whole[:64], choices)
        content = packed({"fields": as_member(fields), **members})
        (folder / "a.npz").write_bytes(altered_bytes(content, choices) if how == 3 else content)
        read = Probe.load(folder / "a.npz")
        verdict_on(read, key, Corrections(1, 1, 1), 1e-3)  # it refuses tokens that are not the key's
        assert read.digest() and read.words_of(key) and len(read.messages(key)) == read.n_texts

    return run


@target
def evidence(folder: Path) -> Run:
    return replayed(folder, verify=False)


@target
def verified_evidence(folder: Path) -> Run:
    return replayed(folder, verify=True)


def replayed(folder: Path, verify: bool) -> Run:
    place, key = FROZEN / "few-probes", WatermarkKey.from_pretrained(FROZEN / "few-probes" / "key")
    shutil.copy(place / "drw-exact-2.probe.npz", folder / "a.probe.npz")
    sound = json.loads((place / "drw-exact-2.json").read_text())

    def run(choices: Choices) -> None:
        document = altered_document(sound, choices)
        written(folder / "a.json", document, choices)
        if verify:
            found = verify_evidence(folder / "a.json", key=key)
            str(found), json.dumps(found.to_dict())
            return
        read = DetectionResult.load(folder / "a.json")
        assert str(read) and repr(read) and read.document() and read.committed in (True, False)

    return run


@target
def identification(folder: Path) -> Run:
    place = FROZEN / "identification"
    shutil.copy(place / "found.probe.npz", folder / "a.probe.npz")
    shutil.copy(place / "found.users.npz", folder / "a.users.npz")
    sound = json.loads((place / "found.json").read_text())

    def run(choices: Choices) -> None:
        written(folder / "a.json", altered_document(sound, choices), choices)
        read = Identification.load(folder / "a.json")
        assert str(read) and read.to_dict() and read.committed in (True, False)

    return run


@target
def rehearsal(folder: Path) -> Run:
    sound = json.loads((FROZEN / "rehearsal" / "rehearsal.json").read_text())

    def run(choices: Choices) -> None:
        written(folder / "a.json", altered_document(sound, choices), choices)
        read = Rehearsal.load(folder / "a.json")
        read.save(folder / "b.json")
        assert str(read) and read.escapes is not None and Rehearsal.load(folder / "b.json") == read
        if not choices.below(8):  # a picture takes its time
            read.page(folder / "a.html")

    return run


# -- logs


@target
def query_log(folder: Path) -> Run:
    """A log of which somebody altered a line, with links that fit again, or bytes."""
    ring = KeyRing.from_pretrained(FROZEN / "query-log" / "ring")
    shutil.copytree(FROZEN / "query-log" / "log", folder, dirs_exist_ok=True)
    sound = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    log = QueryLog(folder)

    def run(choices: Choices) -> None:
        for path, content in sound.items():
            path.write_bytes(content)
        path = sorted(sound)[choices.below(len(sound))]
        if choices.below(4) == 0:
            path.write_bytes(altered_bytes(sound[path], choices))
        elif path.suffix == ".json":
            written(path, altered_document(json.loads(sound[path]), choices), choices)
        else:
            lines = [json.loads(line) for line in sound[path].splitlines()]
            place = choices.below(len(lines))
            lines[place] = altered_document(lines[place], choices)
            relinked(lines)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        read = list(log.lines())
        assert len(log.to_dataset()) == len(read) and log.check().lines == len(read)
        log.asked_under(ring.key_for("customer-0"))

    return run


@target
def log_of_evidence(folder: Path) -> Run:
    """Evidence that rests on a log, of which somebody altered what it declares, or the log, its roots and stamps."""
    place = FROZEN / "log-evidence"
    key, result = WatermarkKey.from_pretrained(place / "key"), DetectionResult.load(place / "evidence.json")
    shutil.copytree(place / "log", folder, dirs_exist_ok=True)
    sound = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    seen, tested_at = datetime(2024, 6, 1, tzinfo=UTC), datetime(2024, 7, 1, tzinfo=UTC)
    context = LogContext(folder, [place / "authority.pem"], None, seen, tested_at)

    def run(choices: Choices) -> None:
        for path, content in sound.items():
            path.write_bytes(content)
        declared = result.log
        if choices.below(2):
            declared = altered_document(result.log, choices)
            LogInterval.from_dict(declared)
        else:
            path = sorted(sound)[choices.below(len(sound))]
            path.write_bytes(altered_bytes(sound[path], choices))
        found = check_log_age({**result.document(), "log": declared}, result.probe, key, context)
        assert all(str(check) for check in found)

    return run


def relinked(lines: list[Any]) -> None:
    """Links as somebody who forges a log would make them."""
    with contextlib.suppress(AttributeError, TypeError, ValueError, KeyError):  # what has no link is for the reader
        link = lines[0]["before"]
        for line in lines:
            line["link"] = link = link_of(link, line)
