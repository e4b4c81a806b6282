"""Small searches for tests."""

from __future__ import annotations

import numpy as np

from vips import DirichletMultinomial, PrivacyBudget, PrivateSearch

VOTES = np.eye(3)[np.random.default_rng(0).choice(3, 400, p=[0.6, 0.3, 0.1])]
PRIORS = {"prior": [1.0, 10.0, 100.0]}


def votes(epsilon=2.0, **settings) -> PrivateSearch:
    """A search over priors of proportions, which takes milliseconds."""
    settings = {"privacy": PrivacyBudget(epsilon, 1e-6)} | settings
    candidates = settings.pop("candidates", PRIORS)
    return PrivateSearch(settings.pop("estimator", DirichletMultinomial()), candidates, **settings)
