"""What public documents tell about the counts of private ones: means of the prior, from which noisy counts are denoised.

An E-step under the present topics gives public counts P_kv. Let ``m`` be the private count under independence of topic and
word, and ρ the number of public words over that of private ones. A count μ is exponential with mean 0.1 m, m or 10 m, and P is
Poisson(w ρ μ). Given P, the mean of μ is the prior mean for the noisy private count.

How far the public documents resemble the private ones is not known. So w ≤ 1 discounts them: it is the one that makes the noisy
totals most likely, found from released numbers, after the noise. Where noise hides everything, w is 1, and the private
counts are about 0: what remains is the public model.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import log_ndtr
from sklearn.utils.validation import check_non_negative

from vips.models._apart import fit_to_public
from vips.models._denoising import MEANS, posterior_mean
from vips.models.topics.statistics import TopicPosterior, canonical

__all__ = ["check_public", "counts_of_public", "denoise_with_public", "topics_of_public"]

_WEIGHTS = (1.0, 0.2, 0.0)  # the largest first: it is kept unless the totals speak for another
_MARGIN = 30.0  # by which the log evidence for another weight must be larger
_CELLS, _EM_STEPS = 20_000, 10
_SHARES = np.array([0.05, 0.9, 0.05])  # of the exponentials, where noise hides them
_SPREAD = 0.9  # share of the start
_STDS = 3.0  # a total of counts must exceed its noise by so much to count


def topics_of_public(model, rng: np.random.Generator) -> np.ndarray:
    """Topic-word counts from which the fit starts, shape (n_components, n_words): those of a fit to the public documents alone.

    In part they are spread over the words as all topics together use them. Few documents make topics too sure of their words;
    spread ones show the direction only, and private documents decide.
    """
    posterior, _ = fit_to_public(model, model.public_documents, public_documents=None, random_state=rng)
    counts = posterior.concentration - model.word_concentration()
    words = counts.sum(axis=0) / max(counts.sum(), 1e-300)
    return (1.0 - _SPREAD) * counts + _SPREAD * counts.sum(axis=1, keepdims=True) * words


def counts_of_public(model, posterior: TopicPosterior) -> np.ndarray:
    """Topic-word counts of the public documents after an E-step, shape (n_components, n_words)."""
    posterior, size = TopicPosterior(posterior.concentration, step=posterior.step), model.default_chunk_size()
    documents = canonical(model.public_documents)
    chunks = (documents[start : start + size] for start in range(0, documents.shape[0], size))
    return sum(
        model.expected_statistics(chunk, posterior).weighted_sum(np.ones(chunk.shape[0]))["topic_word"]
        for chunk in chunks
    )


def denoise_with_public(noisy: np.ndarray, noise_std: np.ndarray, public: np.ndarray) -> tuple[np.ndarray, float]:
    """Posterior mean of topic-word counts given noisy ones and counts of public documents, and the weight w.

    Parameters
    ----------
    noisy, noise_std, public : ndarrays of shape (n_topics, n_words)
    """
    variance = np.square(noise_std)
    overall = max(noisy.sum() - _STDS * np.sqrt(variance.sum()), 1e-9 * noise_std.mean())
    words, topics = (
        posterior_mean(
            noisy.sum(axis=axis)[None],
            np.sqrt(variance.sum(axis=axis))[None],
            overall * _mostly(public.sum(axis=axis))[None],
            shares=_SHARES,
        )[0]
        for axis in (0, 1)
    )
    independent = np.outer(topics / topics.sum(), words)
    cells = np.arange(0, noisy.size, max(1, noisy.size // _CELLS))
    count, std = noisy.ravel()[cells], noise_std.ravel()[cells]
    best = None
    for weight in _WEIGHTS:
        mean = _given_public(weight * public, independent) if weight else independent
        evidence = _log_evidence(count / std, np.outer(MEANS, mean.ravel()[cells] / std))
        if best is None or evidence > best[0] + _MARGIN:
            best = evidence, mean, weight
    _, mean, weight = best
    return posterior_mean(noisy, noise_std, mean, own_shares=True, shares=_SHARES), weight


def _mostly(totals: np.ndarray) -> np.ndarray:
    """Shares of totals, of which a tenth is spread evenly: public documents may lack what private ones have."""
    return 0.9 * totals / max(totals.sum(), 1e-300) + 0.1 / len(totals)


def _given_public(public: np.ndarray, independent: np.ndarray) -> np.ndarray:
    """E[μ | P], shape (n_topics, n_words), with the shares of the exponentials fitted to all P."""
    rate = public.sum() / independent.sum()
    scaled = np.maximum(rate * independent, 1e-100)
    shares = np.full(3, 1.0 / 3.0)
    expected = [MEANS[j] * scaled for j in range(3)]
    logs = np.stack([public * np.log(mean / (1.0 + mean)) - np.log1p(mean) for mean in expected])
    likelihood = np.exp(logs - logs.max(axis=0))
    for _ in range(_EM_STEPS):
        shares = shares * (likelihood / np.tensordot(shares, likelihood, 1)).mean(axis=(1, 2))
    likelihood *= shares[:, None, None]
    means = sum(part * (MEANS[j] / (1.0 + expected[j])) for j, part in enumerate(likelihood))
    return independent * (public + 1.0) * means / likelihood.sum(axis=0)


def _log_evidence(count: np.ndarray, means: np.ndarray) -> float:
    """Log likelihood of counts, in standard deviations of their noise, under a mixture of exponentials whose shares are fitted.

    ``means`` has shape (n_components, n_counts). Up to terms that depend on the counts alone.
    """
    rate = 1.0 / np.maximum(means, 1e-6)
    logs = np.log(rate) + 0.5 * rate**2 - rate * count + log_ndtr(count - rate)
    largest = logs.max(axis=0)
    likelihood = np.exp(logs - largest)
    shares = np.full(len(means), 1.0 / len(means))
    for _ in range(_EM_STEPS):
        shares = shares * (likelihood / (shares @ likelihood)).mean(axis=1)
    return float((largest + np.log(shares @ likelihood)).sum())


def check_public(documents, n_words: int | None) -> None:
    """Check public documents, which may raise: they are public.

    Raises
    ------
    ValueError
        If they are no matrix of counts, or have another number of columns than ``n_words``.
    """
    if documents is None:
        return
    shape = np.shape(documents)
    if len(shape) != 2 or shape[0] == 0 or (n_words is not None and shape[1] != n_words):
        columns = (
            "a column for each word" if n_words is None else f"{n_words:,} columns, one for each word of `vocabulary`"
        )
        raise ValueError(
            f"`public_documents` must be a matrix of counts with at least one row and {columns}, got shape {shape}: count the "
            "words of public texts with the same vocabulary as those of the private ones."
        )
    check_non_negative(documents, "public_documents")
    entries = documents.data if sp.issparse(documents) else np.asarray(documents)
    if not np.isfinite(entries).all():
        raise ValueError("`public_documents` must be finite counts.")
