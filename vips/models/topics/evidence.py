"""Which topics are real: each stands beside topics that noise alone makes.

A private fit shows topics even where documents have none: the noise of a step changes the words of a topic, the next step
assigns words to topics by them, and so the noise persists. The totals alone do not tell such a topic from a real one. So the
fit is repeated on generated documents, whose words are drawn independently from the released frequencies, under as much noise.
They have no more words together than were released, because chance alone makes topics of few words. And they are resized to
``document_length``, if the fit did so: drawing the words of a document again makes topics, too.

=========  ======================================================================================
symbol     meaning
=========  ======================================================================================
N (K, V)   average of the noisy totals, noise of standard deviation s_kv in each cell
π_k, W_v   share of topic k in N, total of word v
r_kv²      (1 - π_k)² s_kv² + π_k² Σ_{j≠k} s_jv²: noise in N_kv - π_k W_v
z_kv       (N_kv - π_k W_v) / r_kv: deviation from the frequencies of words, in standard deviations
=========  ======================================================================================

A topic stands out by the mean of its ten largest z_kv: a single word stands out by chance, too. It is real if that is at least
1.35 times the largest value m of all generated fits, and if more than 0.3 of its squared deviations, weighted by 1/W_v, is not
noise. Beyond m = 20, chance in documents rather than noise makes topics, and how long documents are is a guess: the factor is
1.35 √(m/20), but at most 1.75. Topics that were found in part stay below m, the largest of many. So a topic is noise only if a
fifth of the generated ones stand out as much, and if it is not a part of a real one: roots of its words' probabilities, less
those of the words' frequencies, correlate with those of no real topic by 0.3; with fewer than 500 words, none is. docs/texts.md
shows how all this was checked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from vips.core.plan import PrivacyPlan
from vips.core.stream_plan import StreamPlan
from vips.models._apart import copy_of, fit_apart, stream_apart
from vips.models._denoising import denoise_counts
from vips.models.topics.planning import std_of_average

__all__ = ["TopicEvidence", "counts_of", "deviations", "topic_evidence"]

# At least so many fits, with so many topics in all.
_N_FITS, _N_TOPICS, _N_DOCUMENTS, _FEWEST_DOCUMENTS = 4, 60, 1500, 30
_SHORTEST, _LONGEST = 8, 600  # documents
_LEAST_NOISE, _MOST_NOISE = 1e-12, 1e12  # what a plan accepts
_N_LARGEST, _MARGIN, _WIDEST_MARGIN, _OF_NOISE, _LEAST_STABILITY = 10, 1.35, 1.75, 20.0, 0.3
_NOISE_FROM, _LEAST_LIKENESS = 0.2, 0.3  # p-value, and correlation with a real topic, of a topic that may be noise
_FEWEST_WORDS = 500  # of fewer, ten stand out too little for a topic to be called noise
_RAREST = 1e-5  # words of a smaller share are weighted as if they had it
_NO_CLIP = 1e6  # longer than any generated document
# Generated streams see each document once, so that there can be more documents and topics; of at most so many batches.
_N_STREAMED, _N_STREAMED_TOPICS, _MOST_BATCHES = 30_000, 150, 60


@dataclass(frozen=True)
class TopicEvidence:
    """How far each topic differs from the frequencies of words, and from topics that noise makes.

    Attributes
    ----------
    labels : list of str
        "real", "doubtful" or "noise". A doubtful topic stands out among topics of noise, but not by much, or most of it is
        noise, or it is like a real one. The largest topic often holds the words of all subjects: it differs little from
        their frequencies, and is called noise.
    deviation : ndarray of shape (n_topics,)
        Deviation of words' counts from the frequencies of words, in standard deviations of the noise: mean of the ten
        largest.
    deviation_of_noise : float
        The same for the topic that stands out most in the fits to generated documents without topics.
    p_value : ndarray of shape (n_topics,)
        Share of the topics of these fits that stand out as much; at least 1 over their number.
    stability : ndarray of shape (n_topics,)
        Estimated correlation of the topic's deviations between two draws of the noise of the average; from 0 to 1.
    """

    labels: list[str]
    deviation: np.ndarray
    deviation_of_noise: float
    p_value: np.ndarray
    stability: np.ndarray

    def __str__(self) -> str:
        return counts_of(self.labels)


def counts_of(labels: list[str]) -> str:
    """How many topics have each label, in words."""
    counts = [f"{labels.count(label)} {label}" for label in ("real", "doubtful", "noise")]
    return f"{len(labels)} topics: {', '.join(counts)}."


def topic_evidence(model) -> TopicEvidence:
    """Evidence for each topic of a private fit, from released numbers and simulation.

    Parameters
    ----------
    model : LatentDirichletAllocation
        Fitted with noise, with at least two topics.
    """
    if model.last_posterior_.is_single:
        n, nothing = model.n_components, np.zeros(model.n_components)
        return TopicEvidence(["noise"] * n, nothing, 0.0, np.ones(n), nothing)
    noisy, noise_std = _released_counts(model)
    deviation, stability = deviations(noisy, noise_std)
    words = denoise_counts(noisy, noise_std)[1]
    n_topics = _N_STREAMED_TOPICS if isinstance(model.privacy, StreamPlan) else _N_TOPICS
    n_fits = max(_N_FITS, -(-n_topics // model.n_components))
    noise_deviations = np.concatenate([_of_noise(model, words, seed) for seed in range(n_fits)])
    largest = noise_deviations.max()
    p_value = (1 + np.sum(noise_deviations >= deviation[:, None], axis=1)) / (1 + len(noise_deviations))
    margin = min(_WIDEST_MARGIN, _MARGIN * max(1.0, largest / _OF_NOISE) ** 0.5)
    is_real = (deviation >= margin * largest) & (stability > _LEAST_STABILITY)
    is_part = (_likeness(model.components_)[:, is_real] >= _LEAST_LIKENESS).any(axis=1)
    may_be_noise = (p_value > _NOISE_FROM) & ~is_part & (noisy.shape[1] >= _FEWEST_WORDS)
    labels = np.where(is_real, "real", np.where(may_be_noise, "noise", "doubtful"))
    return TopicEvidence(labels.tolist(), deviation, float(largest), p_value, np.clip(stability, 0.0, 1.0))


def deviations(noisy: np.ndarray, noise_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the ten largest deviations of each topic, and the share of deviations that is not noise; of shape (n_topics,).

    Parameters
    ----------
    noisy : ndarray of shape (n_topics, n_words)
        N.
    noise_std : ndarray of shape (n_topics, n_words)
        s, positive.
    """
    topics, words = np.maximum(noisy.sum(axis=1), 0.0), noisy.sum(axis=0)
    share = topics / max(topics.sum(), 1e-300)
    noise, share = noise_std**2, share[:, None]
    spread = (1.0 - share) ** 2 * noise + share**2 * (noise.sum(axis=0) - noise)
    difference = noisy - share * words
    frequency = np.maximum(words, 0.0) / max(np.maximum(words, 0.0).sum(), 1e-300)
    weight = 1.0 / np.maximum(frequency, _RAREST)
    squares = difference**2 @ weight
    largest = np.sort(difference / np.sqrt(spread), axis=1)[:, -_N_LARGEST:]
    return largest.mean(axis=1), 1.0 - (spread @ weight) / np.maximum(squares, 1e-300)


def _likeness(concentration: np.ndarray) -> np.ndarray:
    """Correlations of topics with each other, by roots of probabilities less those of the frequencies of words."""
    weights = concentration.sum(axis=1)
    rows = np.sqrt(concentration / weights[:, None]) - np.sqrt(concentration.sum(axis=0) / weights.sum())
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return rows @ rows.T


def _released_counts(model) -> tuple[np.ndarray, np.ndarray]:
    """Noisy topic-word counts of a private fit, and their standard deviations, each of shape (n_topics, n_words)."""
    scale, totals = model.last_posterior_.average_scale, model.noisy_totals_
    return totals.average["topic_word"] / scale, totals.noise_std["topic_word"] / scale


def _of_noise(model, words: np.ndarray, seed: int) -> np.ndarray:
    """Deviations of the topics of a fit to generated documents without topics, with as much noise for each word of text;
    ``words`` are denoised totals, shape (n_words,)."""
    rng, plan, n_words = np.random.default_rng(seed), model.privacy_.plan, words.sum()
    stream = _short_stream(model)
    most = _N_DOCUMENTS if stream is None else _N_STREAMED
    if stream is not None:
        n_words *= stream.n_batches / stream.weight(stream.n_batches)  # of all batches, without their decay
    drawn = _lengths(n_words, model.document_length, rng, most)
    fitted = drawn if model.document_length is None else np.full(len(drawn), model.document_length)
    documents = _documents(words / words.sum(), drawn, rng)
    with np.errstate(all="ignore"):
        share = fitted.sum() / n_words
        # In a total of all records: the noise of a step, or that of the last total of a stream.
        of_total = model.noisy_totals_.noise_std["topic_word"]
        std = of_total if stream is not None else std_of_average(plan.with_n_steps(1), lambda t: 1.0)
        noise = float(np.clip(std * share / _NO_CLIP, _LEAST_NOISE, _MOST_NOISE))
    if stream is not None:
        batches = [documents[i :: stream.n_batches] for i in range(stream.n_batches)]
        streamed = stream_apart(copy_of(model, privacy=stream), batches, noise * _NO_CLIP, rng)
        return deviations(*_released_counts(streamed))[0]
    plan = PrivacyPlan(
        noise_multiplier=noise, clip_norm=_NO_CLIP, sampling="full", n_steps=plan.n_steps, reproducible_noise=True
    )
    copy = fit_apart(copy_of(model, privacy=plan, random_state=seed), documents)
    if copy.last_posterior_.is_single:  # so near to where noise hides topics, none is real
        return np.full(model.n_components, np.inf)
    return deviations(*_released_counts(copy))[0]


def _short_stream(model) -> StreamPlan | None:
    """A stream of as many batches as were released, but not too many, in which they fade as much; None of a fit."""
    if not isinstance(model.privacy, StreamPlan):
        return None
    n = min(model.n_batches_seen_, _MOST_BATCHES)
    decay = model.privacy.decay ** (model.n_batches_seen_ / n)
    return replace(model.privacy, n_batches=n, decay=decay, clip_norm=_NO_CLIP, noise="gaussian")


def _lengths(n_words: float, length: int | None, rng: np.random.Generator, most: int) -> np.ndarray:
    """Lengths of documents to draw: so many that the fit, which resizes them to ``length``, sees about ``n_words`` at most."""
    lengths = np.exp(rng.uniform(np.log(_SHORTEST), np.log(_LONGEST), most)).astype(np.int64)
    seen = np.cumsum(lengths if length is None else np.full(len(lengths), length))
    return lengths[: max(_FEWEST_DOCUMENTS, int(np.searchsorted(seen, n_words)))]


def _documents(frequency: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> sp.csr_array:
    columns = np.searchsorted(np.cumsum(frequency), rng.random(lengths.sum()))
    columns = np.minimum(columns, len(frequency) - 1)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    shape = (len(lengths), len(frequency))
    documents = sp.csr_array((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=shape)
    documents.sum_duplicates()
    return documents
