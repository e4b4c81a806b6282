"""Stand-ins of a private fit: fits to documents that are simulated from topics, under noise of the same weight.

Everything here is a function of released and declared numbers: topics that were computed from the noisy totals, the plan, the
constructor's arguments and fixed seeds. No record is used, so stand-ins cost no budget.

=========  =====================================================================================================
symbol     meaning
=========  =====================================================================================================
T̂          denoised total of all words, which a released number tells
w̄          words that a simulated document adds to it after the clip
n, n'      T̂ / w̄, the number of documents that would add as much; n' = min(n, 20,000) are simulated
κ          n'/n, by which the noise is multiplied: a count has as many standard deviations of noise as in the fit
=========  =====================================================================================================

Lengths of documents are not known. They are spread evenly on a logarithmic scale from 8 to 600 words; a fit with a
``document_length`` resizes them, as it resized the records.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp

from vips.models._apart import copy_of, fit_apart
from vips.models.topics.planning import std_of_average
from vips.models.topics.statistics import TopicPosterior
from vips.privacy import PrivacyPlan

__all__ = ["FEWEST_DOCUMENTS", "drawn_lengths", "noise_multiplier", "released_counts", "stand_in", "start_of"]

FEWEST_DOCUMENTS = 30
_MOST_DOCUMENTS, _N_PROBES = 20_000, 500
_SHORTEST, _LONGEST = 8, 600
_NOISE = (1e-12, 1e12)  # what a plan accepts


def stand_in(model, topics: np.ndarray, seed: int, start: np.ndarray | None):
    """A fit to documents of known topics.

    Parameters
    ----------
    model : LatentDirichletAllocation
        Fitted with noise.
    topics : ndarray of shape (n_topics, n_words)
        In the order of the fit's topics. Rows sum to 1.
    seed : int
        Of documents, samples and noise.
    start : ndarray of shape (n_topics, n_words) or None
        From :func:`start_of`. None starts at random.

    Returns
    -------
    LatentDirichletAllocation
        With ``last_posterior_`` and ``noisy_totals_``.
    """
    rng, plan = np.random.default_rng([seed, 0]), model.privacy_.plan
    total = max(float(model.last_posterior_.concentration.sum()), 1.0)
    probes = _documents(topics, drawn_lengths(_N_PROBES, rng), model.topic_concentration(), rng)
    with np.errstate(all="ignore"):
        needed = max(total / max(_words_of_one(model, topics * total, probes), 1e-3), FEWEST_DOCUMENTS)
        n = int(min(needed, _MOST_DOCUMENTS))
        noise = noise_multiplier(plan, plan.sampling_rate / plan.clip_norm * n / needed)
    documents = _documents(topics, drawn_lengths(n, rng), model.topic_concentration(), rng)
    sampling = {"sampling": "full"} if plan.sampling_rate == 1.0 else {"sampling_rate": plan.sampling_rate}
    simulated = PrivacyPlan(
        noise_multiplier=noise, clip_norm=plan.clip_norm, n_steps=plan.n_steps, reproducible_noise=True, **sampling
    )
    fit = copy_of(model, privacy=simulated, random_state=seed)
    if start is not None:
        fit.initial = partial(_given, start)
    return fit_apart(fit, documents)


def start_of(model) -> np.ndarray | None:
    """Totals from which the fit started, if its ``random_state`` is a number; None if that is not known any more.

    The start is public. Where a fit ends depends on it, and so do the errors of the topics.
    """
    if not isinstance(model.random_state, int | np.integer):
        return None
    return model.initial(model.privacy_.plan.randomness(model.random_state).initial)["topic_word"]


def released_counts(model) -> tuple[np.ndarray, np.ndarray]:
    """Noisy topic-word counts of a private fit, and their standard deviations, each of shape (n_topics, n_words)."""
    scale, totals = model.last_posterior_.average_scale, model.noisy_totals_
    return totals.average["topic_word"] / scale, totals.noise_std["topic_word"] / scale


def noise_multiplier(plan: PrivacyPlan, factor: float) -> float:
    """``factor`` times the noise of one step of ``plan``, in units of a total of all records; within what a plan accepts."""
    return float(np.clip(std_of_average(plan.with_n_steps(1), lambda t: 1.0) * factor, *_NOISE))


def drawn_lengths(n: int, rng: np.random.Generator) -> np.ndarray:
    """Words of ``n`` documents."""
    return np.exp(rng.uniform(np.log(_SHORTEST), np.log(_LONGEST), n)).astype(np.int64)


def _given(start: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"topic_word": start}


def _words_of_one(model, counts: np.ndarray, probes: sp.csr_array) -> float:
    """w̄."""
    posterior = TopicPosterior(counts + model.word_concentration(), model.last_posterior_.scale)
    statistics = model.expected_statistics(probes, posterior)
    weights = model.privacy_.plan.clip_weights(statistics.norms(model.blocks()))
    return float((statistics.weighted_sum(weights)["topic_word"] / posterior.scale).sum() / probes.shape[0])


def _documents(topics: np.ndarray, lengths: np.ndarray, prior: float, rng: np.random.Generator) -> sp.csr_array:
    """Documents of a latent Dirichlet allocation, of given lengths."""
    n_topics, n_words = topics.shape
    words_of_topic = rng.multinomial(lengths, rng.dirichlet(np.full(n_topics, max(prior, 1e-3)), len(lengths)))
    rows, columns = [], []
    for probabilities, n in zip(topics, words_of_topic.T, strict=True):
        rows.append(np.repeat(np.arange(len(lengths), dtype=np.int32), n))
        cumulative = np.cumsum(probabilities)
        drawn = np.searchsorted(cumulative, rng.random(len(rows[-1])) * cumulative[-1], side="right")
        columns.append(np.minimum(drawn, n_words - 1).astype(np.int32))
    at = np.concatenate(rows), np.concatenate(columns)
    documents = sp.csr_array((np.ones(len(at[0]), dtype=np.int32), at), shape=(len(lengths), n_words))
    documents.sum_duplicates()
    return documents
