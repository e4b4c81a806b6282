"""How many topics documents support under noise: a rule in public numbers.

A document adds about m = min(C r, r²) counts to the topics, where C is the clip norm and r² the number of its different words.
Spread evenly over V words, n documents give each word n m / V counts; noise of standard deviation s is on every topic's
count of it. Their ratio y = n m / (V s) decides: below about 2.1, one topic (the frequencies of words) predicts best. Above,
about 0.4 y topics are mostly real, and 2.2 y topics predict articles best (docs/texts.md has the measurements).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vips._support.validation import check_choice
from vips.core.plan import PrivacyPlan
from vips.core.sums import Block

__all__ = ["TopicsAdvice", "advise_topics", "shows_topics", "std_of_average"]

_LEAST_RATIO = 2.1
_TOPICS_PER_RATIO = {"reading": 0.4, "perplexity": 2.2}
_MOST_TOPICS, _WORDS_OF_A_TOPIC = 100, 5  # at most so many topics, and at least so many words for each


@dataclass(frozen=True)
class TopicsAdvice:
    """A number of topics, and why.

    Attributes
    ----------
    n_components : int
    signal_to_noise : float
        y.
    """

    n_components: int
    signal_to_noise: float

    def __str__(self) -> str:
        if self.n_components == 1 and self.signal_to_noise >= _LEAST_RATIO:
            return "There are too few words for topics: one topic, the frequencies of words."
        if self.n_components == 1:
            return (
                f"A word's count is {self.signal_to_noise:.2g} standard deviations of the noise, which hides topics: one "
                "topic, the frequencies of words, predicts best. More documents, a larger ε or fewer words would show topics."
            )
        return (
            f"A word's count is {self.signal_to_noise:.2g} standard deviations of the noise, enough for about "
            f"{self.n_components} topics."
        )


def advise_topics(
    n_documents: float, n_words: int, n_different: float, clip_norm: float, std: float, purpose: str = "reading"
) -> TopicsAdvice:
    """Advice from public or released numbers.

    Parameters
    ----------
    n_documents : float
    n_words : int
        V.
    n_different : float
        r², the typical number of different words of a document.
    clip_norm : float
        C.
    std : float
        s, standard deviation of the noise in the average of the totals.
    purpose : {"reading", "perplexity"}
        Topics that are mostly real, or as many as predict best.
    """
    check_choice("purpose", purpose, tuple(_TOPICS_PER_RATIO))
    counts = min(clip_norm * math.sqrt(n_different), n_different)
    total = max(n_documents, 0.0) * counts
    ratio, most = total / (n_words * std), min(_MOST_TOPICS, n_words // _WORDS_OF_A_TOPIC)
    n_components = min(max(2, round(_TOPICS_PER_RATIO[purpose] * ratio)), most)
    if most < 2 or not shows_topics(total, n_words, std):
        n_components = 1
    return TopicsAdvice(n_components, ratio)


def shows_topics(total: float, n_words: int, std: float) -> bool:
    """Whether topics predict better than the frequencies of words, for a total of counts under noise of this deviation."""
    return total >= _LEAST_RATIO * n_words * std


def std_of_average(plan: PrivacyPlan, step_size: Callable[[int], float]) -> float:
    """Standard deviation of the noise in the last average of totals, for a plan with a clip norm."""
    mechanism = plan.mechanism({"totals": Block((1,))}, plan.randomness(None), {"totals": 0.0})
    for t in range(1, plan.n_steps + 1):
        std = mechanism.std_of_average({"totals": step_size(t)})
    return std["totals"]
