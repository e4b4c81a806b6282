"""Topics as simulated documents, matched word by word.

Topics have too many totals for one match of all (:mod:`vips.models.components.matching.match`). But given the posteriors of the
steps, and the shares of documents, what steps release of word v depends on how often each topic emits that word alone:

=========  ==========================================================================================================
symbol     meaning
=========  ==========================================================================================================
x_v        (K,) expected number of tokens of word v by topic, x ≥ 0: topics are φ_jv = x_jv / Σ_v x_jv
y_v        (2K,) totals of word v, averaged over the steps of both groups
G_v        (2K, K) mean statistic of a token of word v from topic j, clip and scales included: E y_v = G_v x_v
C_v        (2K, 2K) covariance of y_v: of documents, of sampled steps, of the simulation of G_v, and of the noise
α, L       concentration of documents' shares, and their length
=========  ==========================================================================================================

A sweep draws documents from φ, with fixed seeds, infers them as the steps did (``slopes.py``), and draws x given all y
(``nonnegative.py``). Lengths of records are private, and their concentration is what the user thinks. So documents of one
length stand for all, and α and L are where both groups of steps agree best, unless frequent words tell little of them: L is
near 70, or near another length under which the groups are much nearer to each other.

Where the groups do not agree, as χ² says, the totals are not those of such documents, or the fit went astray. A topic of noise
says so itself: draws of it are far from each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from vips.expfam import ScaledDirichlet
from vips.models.components.matching.match import Match
from vips.models.components.matching.steps import groups_of
from vips.models.topics.nonnegative import draw_counts
from vips.models.topics.slopes import Law, Sight, Slopes, slopes_of

__all__ = ["MOST_PRODUCTS", "TopicMatch", "match_of", "matched_topics"]

MOST_PRODUCTS = 3_200_000  # n_words n_topics²
# For each sweep: documents, tokens that a word has at least, and draws of x.
_SWEEPS = ((4_000, 15, 100), *((8_000, 25, 100),) * 3, (30_000, 60, 500))
_MOVING = (1, 2, 4)  # sweeps in which α and L move
_LENGTH, _OTHERS = 70.0, (8.0, 15.0, 30.0, 150.0)
_NEARER = 30.0  # by how much the groups are nearer to each other under another length that is told, in χ²
# Deviations of the logs of α and L around what is stated: most of it is the simulation's error.
_SURENESS = Law(0.15, 0.15)
_FACTOR = 1.6  # between values of α and L that are compared
_N_WORDS, _N_TOKENS = 400, 100_000  # by which α and L are told
_LEAST_VAR, _LEAST_PRECISION = 1e-6, 1e-12
_MISFIT, _MOST_SPREAD, _SHORTEST = 0.3, 0.2, 12.0


@dataclass(frozen=True, kw_only=True)
class TopicMatch(Match):
    """Topics, and what the totals tell of them.

    Parameters
    ----------
    topics : ScaledDirichlet
        Shape (n_topics, n_words).
    spread : ndarray of shape (n_topics,)
        Mean squared Hellinger distance of draws of a topic to its mean, from 0 to 2.
    concentration, length : float
        α, summed over topics, and L.
    """

    topics: ScaledDirichlet = field(repr=False)
    spread: np.ndarray
    concentration: float
    length: float

    @property
    def misfit(self) -> float:
        """How far χ² is above what 1.3 times all variances would give, in standard deviations."""
        degrees = (1.0 + _MISFIT) * self.degrees
        return float((self.chi2 - degrees) / np.sqrt(2.0 * max(degrees, 1.0)))


class _Totals(NamedTuple):
    """y and the variance of the noise in it, of some words, each of shape (n_words, 2 n_topics)."""

    values: np.ndarray
    noise_var: np.ndarray

    def part(self, words: np.ndarray) -> _Totals:
        return _Totals(self.values[words], self.noise_var[words])

    def precision(self, cov: np.ndarray) -> np.ndarray:
        """C⁻¹."""
        cov, i = cov.copy(), np.arange(cov.shape[1])
        cov[:, i, i] += self.noise_var + _LEAST_VAR * (1.0 + self.noise_var)
        return np.linalg.inv(cov)

    def residuals(self, G: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """y - G x at the best x, of any sign."""
        weighed = precision @ G
        curvature = np.swapaxes(G, 1, 2) @ weighed
        ridge = 1e-9 * (1.0 + np.trace(curvature, axis1=1, axis2=2))[:, None, None] * np.eye(G.shape[2])
        best = np.linalg.solve(curvature + ridge, np.swapaxes(weighed, 1, 2) @ self.values[:, :, None])
        return self.values - (G @ best)[:, :, 0]


def match_of(model) -> TopicMatch:
    """The topics whose documents give the totals of a private fit.

    Raises
    ------
    NotImplementedError
        If steps are too few, and as :func:`groups_of` does.
    """
    groups = groups_of(model)
    if len(groups) < 2:
        raise NotImplementedError("Topics are matched to the totals of two steps or more: there are no intervals.")
    values, noise_var = (
        np.vstack([getattr(group, name)["topic_word"] for group in groups]).T for name in ("totals", "noise_var")
    )
    with np.errstate(all="ignore"):
        try:
            return _matched(model, Sight(model, groups), _Totals(values, noise_var), groups[-1].steps[-1].posterior)
        except np.linalg.LinAlgError:
            raise NotImplementedError("The released totals tell nothing of topics: there are no intervals.") from None


def matched_topics(match: TopicMatch) -> ScaledDirichlet:
    """Topics of the match.

    Raises
    ------
    NotImplementedError
        If the totals are not those of such documents, these are very short, or a topic is noise.
    """
    match.check()
    if match.length < _SHORTEST:
        raise NotImplementedError(
            f"Documents seem to have about {match.length:.0f} words, which tell too little of their topics: in trials with 8 "
            "words intervals at 95 % held 0.75 to 0.91. So there are no intervals."
        )
    hidden = np.flatnonzero(~(match.spread < _MOST_SPREAD))
    if len(hidden):
        raise NotImplementedError(
            f"Noise hides {len(hidden)} of the {len(match.spread)} topics ({', '.join(map(str, hidden))}); then another may be "
            "two in one. So there are no intervals. Fewer topics, or a larger ε, would show more."
        )
    return match.topics


def _matched(model, sight: Sight, totals: _Totals, last) -> TopicMatch:
    x = last.concentration * max(totals.values.sum(), 1.0) / last.concentration.sum()
    stated = law = Law(max(model.topic_concentration() * len(x), 1e-3), _LENGTH)
    for number, (n_documents, n_tokens, n_draws) in enumerate(_SWEEPS):
        if number == 1:
            stated = law = replace(law, length=_told_length(sight, totals, x, law))
        x = x * _scale(sight, totals, x, law)
        if number in _MOVING:
            law = _fitted_law(sight, totals, x, law, stated)
            x = x * _scale(sight, totals, x, law)
        slopes = slopes_of(sight, x, law, number, n_documents, n_tokens)
        G, precision = slopes.mean, totals.precision(slopes.cov)
        weighed = precision @ G
        curvature, linear = np.swapaxes(G, 1, 2) @ weighed, np.einsum("vak,va->vk", weighed, totals.values)
        curvature += _LEAST_PRECISION * np.eye(len(x))  # of words that no simulated token tells
        base = np.maximum(x.sum(axis=1), 1.0) / x.shape[1]
        mean, squares, roots = draw_counts(curvature, linear, base, x.T.copy(), n_draws, n_draws // 4, number)
        x = mean.T
        if not np.isfinite(squares).all():
            raise np.linalg.LinAlgError
    residuals = totals.residuals(G, precision)
    return TopicMatch(
        topics=ScaledDirichlet(x, np.maximum(squares - mean**2, 1e-12 * squares).T),
        spread=2.0 - 2.0 * (roots * np.sqrt(mean)).sum(axis=0) / mean.sum(axis=0),
        concentration=law.concentration,
        length=law.length,
        n_records=float(x.sum() / law.length),
        degrees=float(residuals.size - x.size),
        move=0.0,
        chi2=float(np.einsum("va,vab,vb->", residuals, precision, residuals)),
    )


def _frequent(x: np.ndarray) -> np.ndarray:
    return np.argsort(-x.sum(axis=0), kind="stable")[:_N_WORDS]


def _scale(sight: Sight, totals: _Totals, x: np.ndarray, law: Law) -> float:
    """By which factor x fits the sum of the totals of frequent words."""
    words = _frequent(x)
    slopes = slopes_of(sight, x, law, 0, 1_000, words=words, with_cov=False)
    expected = float(np.einsum("vak,kv->", slopes.mean, x[:, words]))
    return max(float(totals.values[words].sum()), 1.0) / max(expected, 1e-9)


def _told_length(sight: Sight, totals: _Totals, x: np.ndarray, law: Law) -> float:
    """The length of ``law``, unless both groups are much nearer to each other under another one."""
    if len(x) == 1:
        return law.length
    words, distances = _frequent(x), {}
    for length in (law.length, *_OTHERS):
        trial = replace(law, length=length)
        scaled = x * _scale(sight, totals, x, trial)
        halves = _halves(sight, scaled, trial, words, max(round(length / _FACTOR), 1), with_cov=True)
        distances[length] = _distance(totals.part(words), halves)
    best = min(distances, key=distances.get)
    return best if distances[best] < distances[law.length] - _NEARER else law.length


def _distance(totals: _Totals, halves: list[Slopes], precision: np.ndarray | None = None) -> float:
    """χ² of both groups against each other, without the error of the simulation."""
    if precision is None:
        precision = totals.precision(0.5 * (halves[0].cov + halves[1].cov))
    first, second = (totals.residuals(half.mean, precision) for half in halves)
    return float(np.einsum("va,vab,vb->", first, precision, second))


def _fitted_law(sight: Sight, totals: _Totals, x: np.ndarray, law: Law, stated: Law) -> Law:
    """A move of α and of L, to the lowest point of a parabola."""
    words, logs = _frequent(x), np.log(_FACTOR) * np.array([0.0, -1.0, 1.0])
    totals = totals.part(words)
    for name in ("concentration", "length") if len(x) > 1 else ():
        n_told = max(round(law.length / _FACTOR), 1)
        distances, precision = [], None
        for step in logs:
            trial = replace(law, **{name: getattr(law, name) * float(np.exp(step))})
            halves = _halves(sight, x, trial, words, n_told, with_cov=precision is None)
            precision = totals.precision(0.5 * (halves[0].cov + halves[1].cov)) if precision is None else precision
            doubt = np.log(getattr(trial, name) / getattr(stated, name)) / getattr(_SURENESS, name)
            distances.append(_distance(totals, halves, precision) + doubt**2)
        a, b, _ = np.polyfit(logs, distances, 2)
        move = -0.5 * b / a if a > 0.0 else -np.sign(b) * np.inf
        law = replace(law, **{name: getattr(law, name) * float(np.exp(np.clip(move, logs[1], logs[2])))})
    return law


def _halves(sight: Sight, x: np.ndarray, law: Law, words: np.ndarray, n_told: int, with_cov: bool) -> list[Slopes]:
    """From other documents each: products of their residuals have no error of simulation."""
    n_documents = max(_N_TOKENS // n_told, 100)
    return [slopes_of(sight, x, law, seed, n_documents, 0, words, n_told, with_cov) for seed in (1, 2)]
