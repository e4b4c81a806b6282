"""Private set union: the words that many records hold.

In each of two rounds a record with n words that are still unknown, but of at most M of them, adds 1/√n to the total of each: a
vector of norm 1. Every total that is not 0 gets Gaussian noise, and words above a threshold τ are released.

Phrases of 2, 3, … words follow, in a round for each length: a phrase counts if it begins and ends with a released phrase (or
word) that is one word shorter. So words share their totals with no phrase (Kim, Gopi, Kulkarni and Yekhanin 2021,
*Differentially private n-gram extraction*, arXiv:2108.02831, release phrases in this order).

The noise multipliers σ_r of the rounds are fixed beforehand. What a round asks depends on what was released before, so all
rounds are together one Gaussian mechanism with 1/σ² = Σ 1/σ_r². Only a word that nobody else has shows more than noisy totals
do. A record with t such words gives each of them at most 1/√t, so

    P(any of them is released) ≤ 1 - Φ((τ - 1/√t)/s)^t ≤ δ        for  τ = max_t 1/√t + s Φ⁻¹((1 - δ)^(1/t)),  1 ≤ t ≤ M

(Gopi et al. 2020, *Differentially private set union*; their "weighted Gaussian". Swanberg et al. 2023, arXiv:2302.09483,
repeat it in rounds.) The δ of all rounds add up. Policies that look at other records' words are not used: they need one record
after the other, and a proof of their own.

The shares of the rounds and M were chosen on sentences of a corpus, on docstrings and on 20,000 articles
(docs/texts.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from vips.core.mechanism.release import with_fresh_noise
from vips.core.mechanism.secret_bits import secret_bits
from vips.core.plan import PrivacyPlan
from vips.core.records.ragged import places

__all__ = [
    "FIRST_SHARE", "MOST_WORDS", "Round", "Union", "count_weight", "noisy_union", "plans_of_rounds", "released", "rounds_of",
    "std_of_count", "thresholds", "weighted_words",
]  # fmt: skip

# From a plan and totals to the totals with fresh noise.
Release = Callable[[PrivacyPlan, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

# Share of 1/σ² for the first of both rounds of words; and for both, if phrases follow.
FIRST_SHARE, _OF_WORDS = 0.2, 0.6
# M, by default.
MOST_WORDS = 300
# Weight of a record in the number of records, if that is counted, in the first round.
_OF_COUNT = 0.2
_ROUNDED_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class Union:
    """What all rounds release.

    Attributes
    ----------
    rounds : tuple of (ndarray of int64 or list of str, ndarray)
        For each round, the words that are new in it, and their noisy totals.
    n_records : float or None
        Noisy number of records, if it was counted.
    """

    rounds: tuple[tuple[Sequence, np.ndarray], ...]
    n_records: float | None


@dataclass(frozen=True)
class Round:
    """A release of noisy totals: its plan, its threshold τ, and the number of words of a phrase; 1 for words."""

    plan: PrivacyPlan
    cut: float
    length: int


def rounds_of(plan: PrivacyPlan, delta: float, most: int, longest: int) -> list[Round]:
    """Two rounds of words, and one for each length of phrases up to ``longest`` words."""
    plans = plans_of_rounds(plan, longest)
    cuts = thresholds(delta, [round_plan.noise_std() for round_plan in plans], most)
    return list(map(Round, plans, cuts, [1, *range(1, longest + 1)]))


def plans_of_rounds(plan: PrivacyPlan, longest: int = 1) -> list[PrivacyPlan]:
    """One step each; together they are ``plan``, which has a single step."""
    of_words, n_more = (1.0 if longest == 1 else _OF_WORDS), longest - 1
    shares = [of_words * FIRST_SHARE, of_words * (1.0 - FIRST_SHARE)] + [(1.0 - of_words) / max(n_more, 1)] * n_more
    return [replace(plan, noise_multiplier=plan.noise_multiplier * _ROUNDED_UP / math.sqrt(share)) for share in shares]


def thresholds(delta: float, stds: Iterable[float], most: int) -> list[float]:
    """τ of each round, for noise of these standard deviations; rounded up."""
    t, stds = np.arange(1, most + 1), list(stds)
    tail = -np.expm1(np.log1p(-delta / len(stds)) / t)  # 1 - (1 - δ)^(1/t)
    return [math.nextafter(float(np.max(1.0 / np.sqrt(t) - std * ndtri(tail))), math.inf) for std in stds]


def noisy_union(
    chunks: Collection[tuple[np.ndarray, np.ndarray]],
    rounds: Iterable[Round],
    most: int,
    count_records: bool = False,
    release: Release = with_fresh_noise,
) -> Union:
    """Words above the threshold of each round.

    Parameters
    ----------
    chunks : collection of (ndarray of int64, ndarray of int64)
        The records: numbers of their different words (or phrases of one length), shape (n_words,), and where each record
        starts among them, shape (n_records + 1,).
    rounds : iterable of Round
        Of these words, with ``clip_norm`` 1.
    most : int
        M.
    count_records : bool
        In the first round, a record also adds 0.2 to a total of its own, the number of records, and less to its words: its
        vector has norm 1 all the same.
    release : function
        Adds fresh noise: of the charge that pays.

    Guarantees
    ----------
    A total is a sum over records of shares that depend on the record, on words that were released before, and on coins of that
    record alone. The shares of a record have norm at most 1, up to rounding.
    """
    coins = np.random.default_rng(secret_bits(128))
    known, union, n_records = np.zeros(0, bool), [], None
    for turn in rounds:
        of_count = count_weight(count_records and not union)
        total, count = np.zeros(0), 0.0
        for words, starts in chunks:
            kept, weights = weighted_words(words, starts, known, most, coins, of_count)
            size = max(len(total), int(kept.max(initial=-1)) + 1)
            total = np.pad(total, (0, size - len(total)))
            total += np.bincount(kept, weights, size)
            count += of_count * (len(starts) - 1)
        seen = np.flatnonzero(total)
        words, noisy, counted = released(turn, [(seen, total[seen])], count, of_count, release)
        n_records = counted if of_count else n_records
        numbers = np.array(words, np.int64)
        union.append((numbers, noisy))
        known = np.pad(known, (0, max(0, len(total) - len(known))))
        known[numbers] = True
    return Union(tuple(union), n_records)


def count_weight(is_counted: bool) -> float:
    """What a record adds to the number of records in a round."""
    return _OF_COUNT if is_counted else 0.0


def std_of_count(plan: PrivacyPlan, longest: int) -> float:
    """Standard deviation of the noise in the number of records."""
    return plans_of_rounds(plan, longest)[0].noise_std() / _OF_COUNT


def released(
    turn: Round,
    blocks: Iterable[tuple[Sequence, np.ndarray]],
    count: float,
    of_count: float,
    release: Release,
) -> tuple[list, np.ndarray, float | None]:
    """The words whose noisy totals are above the threshold, these totals, and the noisy number of records, if it has a weight.

    Parameters
    ----------
    blocks : iterable of (sequence of n words, ndarray of shape (n,))
        All words whose total is not 0, each once, some at a time. Each block gets noise of its own.
    count, of_count : float
        Sum of the records' weights in their number, and this weight of one record; 0 if records are not counted.
    """
    words, above, counted = [], [np.zeros(0)], None
    remaining_blocks = iter(blocks)
    block = next(remaining_blocks, ((), np.zeros(0)))  # without words, too, the records are counted
    is_first = True
    while block is not None:
        totals = {"words": block[1], "records": np.array([count] if is_first else [])}
        noisy = release(turn.plan, totals)
        if is_first and of_count:
            counted = float(noisy["records"][0]) / of_count
        kept = np.flatnonzero(noisy["words"] > turn.cut)
        words += [block[0][i] for i in kept]
        above.append(noisy["words"][kept])
        block, is_first = next(remaining_blocks, None), False
    return words, np.concatenate(above), counted


def weighted_words(
    words: np.ndarray, starts: np.ndarray, known: np.ndarray, most: int, coins: np.random.Generator, of_count: float
) -> tuple[np.ndarray, np.ndarray]:
    """The words to which records add, and how much, beside ``of_count`` for each record's being there: together of norm 1."""
    kept, weights = _shares(words, starts, known, most, coins)
    return kept, weights * math.sqrt(1.0 - of_count**2)


def _shares(
    words: np.ndarray, starts: np.ndarray, known: np.ndarray, most: int, coins: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The words to which records add, and how much: of each record at most ``most`` unknown ones, drawn at random."""
    record = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    unknown = np.ones(len(words), bool)
    old = words < len(known)
    unknown[old] = ~known[words[old]]
    words, record = words[unknown], record[unknown]
    counts = np.bincount(record, minlength=len(starts) - 1)
    if counts.max(initial=0) > most:
        order = np.lexsort((coins.random(len(words)), record))
        rank = places(counts)
        chosen = order[rank < most]
        words, record = words[chosen], record[chosen]
    return words, 1.0 / np.sqrt(np.minimum(counts, most)[record])
