"""The paper's own private LDA. IT CARRIES NO GUARANTEE and is here for comparison only.

What is unsound in it: batches have a fixed size, while the accounting assumes Poisson samples; the
strong-composition curve uses a Gaussian formula outside its range (ε₀ > 1). What costs accuracy: negative counts are set
to zero in every step, which turns zero-mean noise into bias; τ₀ = 1024 takes tiny steps.

Algorithm 3 of Park et al., arXiv:1611.00340; accounting as in its section 4.3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from vips import LatentDirichletAllocation, PrivacyPlan, RobbinsMonro
from vips.core.mechanism.clipping import clip_weights
from vips.core.sums import Block
from vips.models.topics.statistics import DocumentStatistics, TopicPosterior, canonical

N_STEPS, SAMPLING_RATE = 20, 0.05  # S = 20,000 of 400,000 documents, one epoch
DOCUMENT_LENGTH, CLIP_SHARE = 500, 0.1
SCHEDULE = RobbinsMonro(offset=1024.0, decay=0.7)


def sigma_by_moments(epsilon: float, delta: float) -> float:
    """Smallest σ (to 0.1 %) with this ε by the paper's moments accountant and its restricted orders."""
    for sigma in np.exp(np.arange(np.log(0.4), np.log(20.0), 1e-3)):
        plan = PrivacyPlan(noise_multiplier=float(sigma), sampling_rate=SAMPLING_RATE, n_steps=N_STEPS)
        if plan.epsilon(delta, "moments", orders="paper") <= epsilon:
            return float(sigma)
    raise ValueError(f"The paper's orders are empty before ε = {epsilon} is reached.")


def sigma_by_strong_composition(
    epsilon: float,
    delta: float,
    step_delta: float = 1e-6,
    sampling_rate: float = SAMPLING_RATE,
    n_steps: int = N_STEPS,
) -> float:
    """σ of the paper's strong-composition baseline; its last formula needs ε₀ ≤ 1 and is used beyond that range."""
    slack = delta - n_steps * sampling_rate * step_delta

    def total(step_epsilon: float) -> float:
        amplified = np.log1p(sampling_rate * np.expm1(step_epsilon))
        return np.sqrt(2 * n_steps * np.log(1 / slack)) * amplified + n_steps * amplified * np.expm1(amplified)

    step_epsilon = brentq(lambda e: total(e) - epsilon, 1e-6, 50.0)
    return float(np.sqrt(2 * np.log(1.25 / step_delta)) / step_epsilon)


def fit(
    counts,
    n_topics: int,
    sigma: float,
    seed: int,
    batch_size: int | None = None,
    n_steps: int = N_STEPS,
    each_step: Callable[[int, LatentDirichletAllocation], None] | None = None,
) -> LatentDirichletAllocation:
    """The paper's loop. Returns a model that can be scored; it has no privacy report.

    ``batch_size`` is S; by default the paper's share of the documents (one epoch). A larger one wraps around. ``each_step`` is
    called with the number of steps and the model so far. σ = 0 is the paper's loop without noise, and without clipping.
    """
    rng = np.random.default_rng(seed)
    n_documents, n_words = counts.shape
    prior = 1.0 / n_topics
    model = LatentDirichletAllocation(n_topics, document_length=DOCUMENT_LENGTH)
    order = rng.permutation(n_documents)
    batch_size = batch_size or int(SAMPLING_RATE * n_documents)
    bound = CLIP_SHARE * DOCUMENT_LENGTH
    topics = rng.gamma(100.0, 0.01, (n_topics, n_words))
    model.n_features_in_ = n_words
    for t in range(1, n_steps + 1):
        rows = order[np.arange((t - 1) * batch_size, t * batch_size) % n_documents]
        batch = model.resized(canonical(counts[rows]))
        statistics = DocumentStatistics(batch, TopicPosterior(topics), prior, 1e-3, 100, np.float32)
        norms = statistics.norms({"topic_word": Block(topics.shape)})
        weights = clip_weights(norms, bound) if sigma > 0.0 else np.ones(len(rows))
        mean = statistics.weighted_sum(weights)["topic_word"] / batch_size
        noisy = np.maximum(mean + rng.normal(0.0, sigma * bound / batch_size, mean.shape), 0.0)
        rho = SCHEDULE(t)
        topics = (1.0 - rho) * topics + rho * (prior + n_documents * noisy)
        model.last_posterior_ = TopicPosterior(topics)
        if each_step is not None:
            each_step(t, model)
    return model
