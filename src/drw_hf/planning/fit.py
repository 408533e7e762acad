"""From an accuracy budget to the settings of the mark ``tilt``: temperature first, then strength.

The owner states a price. The temperature is fitted to clean answers before any number of any key is read, the strength
to throwaway keys with fresh secrets: neither knows anything of the key that will be served.
"""

import math
from dataclasses import dataclass
from typing import Any, Unpack

from ..asking.options import AskingOptions
from ..checks import check_options, in_range, whole_number
from ..errors import InvalidInputError
from ..keys.key import WatermarkKey
from ..watermark.tilt import TiltMark, TiltSettings, settings_of
from .margin_costs import MarginCost, MarginCosts
from .temperature import fit_temperature
from .tilt_costs import POINTS, STRONGEST, TiltCost, TiltCosts
from .tilt_traffic import LEAST_KEYS, TiltTraffic, observe_tilt_traffic, require_tilt, throwaway_keys

BUDGET = 0.3  # points
FAR = 4.0  # standard errors between the measured and the expected cost that are no chance
CAUTION = (
    "The temperature was given, not fitted to labels of this data, so do not rely on the cost: one that was fitted on "
    "training labels is usually too low."
)


@dataclass(frozen=True)
class Fit:
    """The settings that an accuracy budget leads to, and what they cost; ``str`` says it in words.

    Attributes
    ----------
    settings : TiltSettings
        Strength, temperature and budget, and what the key had before.
    cost : TiltCost
        What the strength costs, in points.
    margin_cost : MarginCost or None
        What the draws of close calls cost hard answers on top; None without any.
    expected_accuracy : float
        The accuracy of the clean answers, in points, if the model is calibrated.
    clean_accuracy : float or None
        The accuracy of the clean answers, in points; None without labels.
    reliable : bool
        Whether the temperature was fitted to labels of this data. One that was given may be wrong, and the expected
        cost with it.
    n_items, n_texts, n_keys : int
        How many answers, of how many texts, and how many throwaway keys the cost is over.
    """

    settings: TiltSettings
    cost: TiltCost
    expected_accuracy: float
    clean_accuracy: float | None
    reliable: bool
    n_items: int
    n_texts: int
    n_keys: int
    margin_cost: MarginCost | None = None

    @property
    def strength(self) -> float:
        """β."""
        return self.settings.strength

    @property
    def temperature(self) -> float:
        """The calibration temperature."""
        return self.settings.temperature

    @property
    def budget(self) -> float:
        """The accuracy in points that the mark may cost."""
        assert self.settings.budget is not None  # it was fitted to one
        return self.settings.budget

    @property
    def expected_cost(self) -> float:
        """The expected cost in points, over items and throwaway keys, of a calibrated model."""
        return self.cost.expected_cost

    @property
    def standard_error(self) -> float:
        """The standard error of ``expected_cost``, over the keys."""
        return self.cost.standard_error

    @property
    def measured_cost(self) -> float | None:
        """The accuracy in points that was counted to be lost; None without labels."""
        return self.cost.measured_cost

    @property
    def measured_error(self) -> float | None:
        """The paired standard error of ``measured_cost``, over texts and keys."""
        return self.cost.measured_error

    @property
    def used_up(self) -> bool:
        """Whether the budget decided; else the strength is the largest that a budget allows, and costs less."""
        return self.strength < STRONGEST

    @property
    def _error(self) -> float:
        """The standard error of the difference between the measured and the expected cost, roughly."""
        return math.hypot(self.cost.measured_error or 0.0, self.cost.standard_error, self.cost.text_error)

    def __str__(self) -> str:
        origin = "fitted" if self.reliable else "given"
        cost = self.cost
        lines = [
            f"strength {self.strength:g} at temperature {self.temperature:g} ({origin}), for {self.budget:g} points",
            f"expected cost {cost.expected_cost:.3f} ± {cost.standard_error:.3f} points of accuracy "
            f"over {self.n_keys} throwaway keys, ± {cost.text_error:.3f} over {self.n_texts:,} texts; "
            f"a single key strays by {cost.spread:.3f}",
        ]
        if cost.measured_cost is not None:
            lines.append(
                f"measured cost {cost.measured_cost:.3f} ± {cost.measured_error:.3f} points, of an accuracy of "
                f"{self.clean_accuracy:.2f} %"
            )
        if cost.measured_cost is not None and abs(cost.measured_cost - cost.expected_cost) > FAR * self._error:
            lines.append(
                "What was measured is far from what was expected: this model's probabilities are not put right by a "
                "temperature alone, so do not rely on the expected cost."
            )
        if (drawn := self.margin_cost) is not None:
            lines.append(
                f"hard answers: margin {drawn.margin:g} draws {100 * drawn.drawn:.1f} % of them between the two best "
                f"classes, which costs {drawn.expected_cost:.3f} ± {drawn.standard_error:.3f} points more"
                + ("" if drawn.measured_cost is None else f" (measured {drawn.measured_cost:.3f})")
            )
        if not self.used_up:
            lines.append("The budget is not used up: the model is so sure that the largest strength costs less.")
        if not self.reliable:
            lines.append(CAUTION)
        return "\n".join(lines)


def fit_tilt(
    model: Any,
    data: Any,
    tokenizer: Any,
    *,
    budget: float = BUDGET,
    margin_budget: float = 0.0,
    temperature: float | None = None,
    keys: int = LEAST_KEYS,
    label_column: str | None = None,
    like: WatermarkKey | None = None,
    **asking: Unpack[AskingOptions],
) -> Fit:
    """Fit the mark ``tilt`` to a model and an accuracy budget; :meth:`drw_hf.WatermarkKey.fit` makes a key of it.

    Parameters
    ----------
    model, data, tokenizer, budget, margin_budget, temperature, keys, label_column
        As for :meth:`drw_hf.WatermarkKey.fit`.
    like : WatermarkKey, optional
        A key whose other settings (``tau``, ``frequency``, truncation) are kept; of its secret nothing is read. By
        default those of a fresh key for ``model``, which must then be in memory.
    **asking
        How the model is asked: :class:`drw_hf.asking.AskingOptions`.
    """
    check_options("fit_tilt", asking, AskingOptions)
    like = like or WatermarkKey.generate(model, tokenizer=tokenizer, mark=TiltMark.name, temperature=1.0)
    check_price(like, budget, margin_budget, temperature, keys)
    traffic = observe_tilt_traffic(model, data, tokenizer, like=like, label_column=label_column, **asking)
    return fit_to(traffic, like, budget=budget, margin_budget=margin_budget, temperature=temperature, keys=keys)


def fit_to(
    traffic: TiltTraffic,
    like: WatermarkKey,
    *,
    budget: float,
    margin_budget: float = 0.0,
    temperature: float | None,
    keys: int = LEAST_KEYS,
) -> Fit:
    """The same, from a sample of traffic that was observed before."""
    found = temperature_of(traffic, temperature)  # before any number of a key is read
    made_up = throwaway_keys(like, keys)
    costs = TiltCosts(traffic, found, made_up)
    strength = costs.strength_for(budget - margin_budget)
    if not strength:
        raise InvalidInputError(
            f"no strength fits into a budget of {budget - margin_budget:g} points: on these {traffic.n_items} answers "
            "any costs more; give more text, or a larger budget"
        )
    settings = settings_of(like).replace(strength=strength, temperature=found, budget=float(budget))
    drawn = None
    if margin_budget:
        margins = MarginCosts(traffic, found, made_up, strength)
        drawn = margins.at(margins.margin_for(margin_budget))
        if not drawn.margin:
            raise InvalidInputError(
                f"no margin fits into a budget of {margin_budget:g} points: on these {traffic.n_items} answers any "
                "costs more; give more text, a larger margin_budget, or 0 for no draws"
            )
        settings = settings.replace(margin=drawn.margin, margin_budget=float(margin_budget))
    return Fit(
        settings=settings,
        cost=costs.at(strength),
        expected_accuracy=costs.expected_accuracy,
        clean_accuracy=costs.clean_accuracy,
        reliable=temperature is None,
        n_items=traffic.n_items,
        n_texts=traffic.n_texts,
        n_keys=keys,
        margin_cost=drawn,
    )


def check_price(like: WatermarkKey, budget: float, margin_budget: float, temperature: float | None, keys: int) -> None:
    """Refuse what is wrong before a model is asked for long."""
    require_tilt(like)
    in_range("budget", budget, 0.0, POINTS, above=True)
    if in_range("margin_budget", margin_budget, 0.0, POINTS) >= budget:
        raise InvalidInputError(
            f"margin_budget={margin_budget:g} is the part of budget={budget:g} that close calls may cost; expected "
            "less than the whole, which the tilt needs too"
        )
    whole_number("keys", keys, LEAST_KEYS)
    if temperature is not None:
        settings_of(like).replace(temperature=temperature)


def temperature_of(traffic: TiltTraffic, given: float | None) -> float:
    """The temperature that was given, or else the one by which the labels are most likely; never a guess."""
    if given is not None:
        return float(given)
    if not traffic.labelled:
        raise InvalidInputError(
            "the data has no labels, so the model's calibration temperature cannot be fitted, and without it a "
            "strength means nothing: models are mostly surer than they are right; give labelled data (label_column=, "
            "--label-column), or the temperature if you know it (temperature=, --temperature), and take the cost that "
            "is then stated for a guess"
        )
    return fit_temperature(traffic.logits, traffic.gold)
