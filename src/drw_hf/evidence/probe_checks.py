"""Checks of a probe against what lies outside of it: a tokenizer, a corpus, a digest that others published."""

from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..asking.questions import Cut, recorded_cut
from ..detection.cutting import is_cut_otherwise
from ..detection.drawing import drawn_again
from ..detection.probing import Probe, are_tokens_of
from ..detection.texts import asked_texts, encode
from ..errors import DrwError
from ..keys.binding import tokenizer_digest, tokenizer_fingerprint
from ..keys.key import WatermarkKey
from .check import Check, Status

TOKENS = "the tokens are those of the texts"
CUT = "the texts were cut as the key records"
DRAWN = "the texts were drawn by the public seed"
PARTYS = "the suspect's answers are those that a neutral party recorded"


def check_tokens(
    probe: Probe | None, key: WatermarkKey, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[Check, ...]:
    """Whether the tokens in a probe are those that the key's tokenizer makes of its texts; none without both.

    A probe also says by which tokenizer it was made, the whole of it: another one than the key's leaves it open.
    """
    if probe is None or probe.texts is None or probe.cut is None:
        return ()
    if tokenizer is None:
        if len({probe.tokenizer_digest, key.tokenizer_digest} - {None}) < 2:
            return ()
        said = "the probe was made with another tokenizer, though of the key's vocabulary: give the key's to compare"
        return (Check(TOKENS, "open", said),)
    if key.tokenizer_fingerprint not in (None, tokenizer_fingerprint(tokenizer)):
        return (Check(TOKENS, "failed", "the tokenizer given has another vocabulary than the key was made with"),)
    try:
        tokens = encode(asked_texts(probe.texts, probe.task), tokenizer, Cut(**probe.cut), probe.task)
    except (DrwError, TypeError, ValueError) as error:
        return (Check(TOKENS, "failed", f"the texts cannot be tokenised ({type(error).__name__})"),)
    if not are_tokens_of(probe, tokens):
        return (Check(TOKENS, "failed", "computed again from the texts, they are others"),)
    given, doubts = tokenizer_digest(tokenizer), []
    if key.tokenizer_digest not in (None, given):
        doubts.append("the tokenizer given has the key's vocabulary, but is not the one that the key was made with")
    status: Status = "open" if doubts else "passed"
    return (Check(TOKENS, status, "; ".join([f"computed again, all {len(probe.input_ids)} are", *doubts])),)


def check_cut(document: Mapping[str, Any], probe: Probe | None, key: WatermarkKey) -> tuple[Check, ...]:
    """Whether texts were cut as the key records, or another cut counts as a look; none where it records nothing."""
    if probe is None or probe.cut is None or recorded_cut(key.settings) is None:
        return ()
    if not is_cut_otherwise(probe, key):
        return (Check(CUT, "passed", "no text was cut otherwise"),)
    looks = document.get("looks")
    if type(looks) is not int or looks < 2:
        said = f"they were cut in another way, and looks={looks}: another cut is another look"
        return (Check(CUT, "failed", said),)
    return (Check(CUT, "passed", f"they were cut in another way, which looks={looks} counts"),)


def check_draw(probe: Probe | None, corpus: Iterable[Any] | None) -> tuple[Check, ...]:
    """Whether a probe's texts are those that its seed draws from a corpus; none without both."""
    if probe is None or corpus is None:
        return ()
    if probe.draw is None or probe.texts is None:
        return (Check(DRAWN, "open", "the probe does not say that its texts were drawn"),)
    try:
        problem = drawn_again(probe, corpus)
    except DrwError as error:
        problem = str(error)
    if problem is not None:
        return (Check(DRAWN, "failed", problem),)
    return (
        Check(DRAWN, "passed", f"drawn again, all {probe.n_texts} are; the seed is that of {probe.draw['source']}"),
    )


def check_party(probe: Probe | None, digest: str | None) -> tuple[Check, ...]:
    """Whether a probe is the one whose digest a neutral party published; none without that."""
    if probe is None or digest is None:
        return ()
    found = probe.asked_digest()
    if found != digest.strip().lower():
        return (Check(PARTYS, "failed", f"their digest is {found[:16]}…, not the one given"),)
    return (Check(PARTYS, "passed", f"their digest is {found[:16]}…, the one given"),)
