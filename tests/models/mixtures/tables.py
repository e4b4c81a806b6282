"""Tables of answers for tests, and the model written down anew."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, logsumexp

LEVELS = (2, 3, 4, 2)


def answers(n, seed=0, missing=0.1, levels=LEVELS, n_classes=3):
    """Codes of records in well separated classes, -1 where missing."""
    rng = np.random.default_rng(seed)
    tables = [rng.dirichlet(np.full(size, 0.5), n_classes) for size in levels]
    classes = rng.choice(n_classes, n)
    codes = np.column_stack([(rng.random(n)[:, None] > t.cumsum(axis=1)[classes, :-1]).sum(axis=1) for t in tables])
    return np.where(rng.random(codes.shape) < missing, -1, codes)


def one_hot(codes, levels=LEVELS):
    """Indicators of the answers, 0 where missing: shape (n, sum of levels)."""
    return np.hstack([np.eye(size + 1)[column][:, :size] for size, column in zip(levels, codes.T, strict=True)])


def by_column(array, levels=LEVELS):
    return np.split(array, np.cumsum(levels)[:-1], axis=1)


def textbook_step(indicators, weights, answers, priors, expected_log):
    """One step of variational Bayes (or of EM), from concentrations to concentrations; and the log likelihood before it."""

    def logs(concentration):
        if expected_log:
            return digamma(concentration) - digamma(concentration.sum(axis=-1, keepdims=True))
        return np.log(concentration / concentration.sum(axis=-1, keepdims=True))

    tables = np.hstack([logs(column) for column in by_column(answers)])
    joint = logs(weights) + indicators @ tables.T
    shares = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    return priors[0] + shares.sum(axis=0), priors[1] + shares.T @ indicators, logsumexp(joint, axis=1)
