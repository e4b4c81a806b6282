"""Posteriors of files that no fit makes are refused in words, whichever of their arrays was changed."""

import numpy as np
import pytest

from tests.laws import checks
from tests.laws.cases import BY_NAME
from vips.core.posteriors import restore_posterior

# Of a case of the laws, by array: numbers that fill it, or functions of the array.
FORGED = {
    "mixture": {
        "mean": [np.nan, 1e300, True],
        "mean_precision": [0.0, -1.0],
        "dof": [0.0, np.inf],
        "concentration": [0.0, np.nan],
        "factor": [0.0, np.nan, 1.0, 1e300, 1e-300],
        "tail": [-1.0, np.nan, 1e-300],
        "portion": [0.0, np.nan, 2.0],
        "prior_covariance": [-1.0, np.nan],
        "directions": [np.nan],
        "parent": [-1, 99, 0.5],
        "n_active": [0, 99, np.inf],
        "covariance_type": [1, 99, -1, np.inf],
        "plug_in": [True, 0.0],
    },
    "mixture diagonal, Student-t": {"tail": [0.0, -1.0, np.nan, 1e-300]},
    "mixed effects": {
        "parameters_cov": [
            lambda cov: cov + 0.1 * cov.max() * np.eye(len(cov), k=1),
            lambda cov: cov - 2.0 * np.eye(len(cov)) * np.diagonal(cov),
            lambda cov: cov[:-1, :-1],
        ]
    },
    "mixed classes": {"scale": [1e-320], "centre": [1e300], "numbers_mean": [1e300], "counts_shape": [1e100]},
    "poisson chain": {
        "scale": [1e-320, 0.0],
        "centre": [1e300],
        "counts_shape": [1e100],
        "counts_rate": [1e-320],
        "seed": [np.nan, 1.0, -1],
    },
    "latent classes": {
        "draws": [np.inf, 1e300],
        "marginals": [np.nan],
        "plug_in": [1.0],
        "weights": [0.0],
        "answers_levels": [3.0, 3],
        "answers_concentration": [np.nan],
    },
    "gaussian chain": {"gaussians_covariance_type": [lambda kind, i=i: (kind + i) % 4 for i in (1, 2, 3)]},
    "factorial chain": {
        "mean": [lambda mean: mean[:, 1:]],
        "scale": [np.negative],
        "dof": [0.5],
        "spread": [0.0],
        "whitening": [lambda whitening: whitening + np.triu(np.ones((3, 3)), 1)],
        "centre": [np.nan],
        "moves": [lambda moves: moves[:1]],
    },
    "dynamics": {"moves": [lambda _: np.eye(3)], "noise_variance": [0.0], "offset": [np.nan]},
    "switching": {
        "moves_cov": [0.0],
        "shared_start_cov": [0.0],
        "regime_moves": [np.negative],
        "regime_start": [np.exp, lambda _: np.ones(3)],
    },
}
SAYS = r"the posterior's|covariance is none|concentration|rate|seed|dynamics|positive definite|add up to 1|regimes"


def read(posterior, arrays):
    """From a file for a model with this posterior."""
    type(posterior).from_arrays(arrays)  # by itself, and then by the shapes of the model's
    return restore_posterior(posterior, arrays)


@pytest.mark.parametrize(("name", "array"), [(name, array) for name, arrays in FORGED.items() for array in arrays])
def test_forged_posteriors_are_refused(name, array):
    posterior = checks.prepared(BY_NAME[name], 4)[3]
    arrays = posterior.to_arrays()
    np.testing.assert_array_equal(read(posterior, arrays).to_arrays()[array], arrays[array])
    for value in FORGED[name][array]:
        forged = value(arrays[array]) if callable(value) else np.full(np.shape(arrays[array]), value)
        with pytest.raises(ValueError, match=SAYS):
            read(posterior, arrays | {array: forged})
