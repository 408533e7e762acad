"""What no replay can tell: the sentences of :attr:`Verification.not_checked`."""

from collections.abc import Container, Mapping
from typing import Any

from ..detection.cutting import free_length
from ..detection.probing import Probe
from ..detection.statistics import STATISTICS, newest_for
from ..keys.key import WatermarkKey
from .logs import NAME as OLD_LOG
from .logs import rests_on_log
from .probe_checks import DRAWN, PARTYS, TOKENS


def taken_on_trust(
    document: Mapping[str, Any], probe: Probe | str, key: WatermarkKey, shown: Container[str] = ()
) -> tuple[str, ...]:
    """What no check can tell, of those things that this evidence rests on; ``shown`` are the checks that passed."""
    settings = document["settings"] if isinstance(document["settings"], dict) else {}
    optional = ("victim", "reference", "gold", "logged", "label_map", "controls", "draw")
    given = {name: getattr(probe, name, None) is not None for name in optional}
    log = rests_on_log(document, probe if isinstance(probe, Probe) else None)
    old_log = OLD_LOG in shown
    newest = newest_for(STATISTICS, probe, key) if isinstance(probe, Probe) else None
    has_texts = getattr(probe, "texts", None) is not None
    believed = {
        "The answers in the probe are the suspect's.": PARTYS not in shown,
        "The answers in the probe are the suspect's: that is the word of the party who published the probe's digest, "
        "and so is that it had not seen the key.": PARTYS in shown,
        "The tokens in the probe are those of the texts that the suspect was asked: the probe does not keep these.": (
            not has_texts
        ),
        "The tokens in the probe are those of its texts: give the tokenizer to have them computed again.": has_texts
        and TOKENS not in shown,
        "The tokenizer splits texts as it did when the key was made: the key fixes its vocabulary alone.": TOKENS
        in shown
        and key.tokenizer_digest is None,
        "The texts were not chosen by the suspect's answers, and none were left out afterwards: whoever keeps those "
        "that fit the key makes an unmarked suspect look marked.": DRAWN not in shown and not old_log,
        "Which days of the log were tested was not chosen by the suspect's answers.": old_log,
        "No other lines were stamped for the same days and left out, like a second log, or that of a replica: stamps "
        "are private.": old_log,
        "What stands in the log was served to somebody: that it was written before the suspect was seen is shown, and "
        "no more.": old_log,
        "A public seed, which the probe names, drew the texts: give the corpus to draw them again.": given["draw"]
        and DRAWN not in shown,
        "The seed of the draw is what its source gave, and nobody knew it when the key, the corpus and how many texts "
        "were fixed.": DRAWN in shown,
        "What the suspect left unanswered is what it did not answer, and not what its accuser took out.": bool(
            getattr(probe, "n_unanswered", 0)
        ),
        "The clean victim's answers in the probe are the clean victim's, and it was never trained on answers that "
        "were served: else it carries the mark itself.": given["victim"],
        "The reference's answers in the probe are those of a model that has nothing to do with the key, and that was "
        "not made from the suspect's answers.": given["reference"],
        "The controls are innocent models, they gave these answers, and none was left out.": given["controls"],
        "The suspect's labels are those of the key that the owner chose for them (label_map), and no others were "
        "tried.": given["label_map"] or bool(document.get("label_map")),
        "The gold labels in the probe are right.": given["gold"],
        "The logged labels in the probe are those that were served.": given["logged"] and not old_log,
        "The logged counts are how often the tokens were asked.": bool(settings.get("logged_counts")),
        "Which texts were asked of the service, and which of them are in the log, did not depend on what it answered: "
        "a log that is filtered by answers, feedback or correctness makes unmarked suspects look marked, and so may "
        "a client who chose what to ask by earlier answers.": log,
        "The log is in the order in which it was served: of answers that share a draw the first counts.": bool(
            document.get("parts")
        )
        and not old_log,
        "No other length was tried after which texts were cut: the key does not record one.": isinstance(probe, Probe)
        and free_length(probe, key) is not None,
        "No more keys, suspects and looks were tried than are declared.": True,
        "Nobody put the mark there: neither a customer who recovered the key's numbers from answers, nor the owner by "
        "publishing marked labels for others to learn from.": True,
        "The statistic was chosen before its result was seen: there is a newer one for such a probe.": newest
        is not None
        and newest.name != document["statistic"],
        "The suspect was not seen before the day that is declared.": document.get("suspect_first_seen") is not None,
        "The evidence was made when it says, with the library versions it names.": True,
    }
    return tuple(sentence for sentence, needed in believed.items() if needed)
