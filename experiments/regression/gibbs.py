"""``python -m experiments blr_posterior``: variational and corrected posteriors against Gibbs sampling, without privacy."""

from __future__ import annotations

from itertools import islice

import numpy as np
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import StandardScaler

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import BayesianLogisticRegression
from vips.expfam import Gamma
from vips.reference import gibbs_logistic


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments blr_posterior", __doc__)
    parser.add_argument("--draws", type=int, default=20_000)
    options = parser.parse_args(arguments)
    folder = folder_of("blr_posterior", options)
    n_draws, n_sets = (1000, 1) if options.quick else (options.draws, None)
    rows = [compare(name, X, y, n_draws) for name, X, y in islice(data_sets(), n_sets)]
    lines = [
        "| data | records, features | deviation of x'w | mean: distance in exact deviations | variational ÷ exact deviation "
        "| `laplace_posterior` ÷ exact | least effective draws |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row['data']} | {row['n']}, {row['d']} | {row['signal']:.2f} | at most {row['mean']:.3f} "
            f"| {_range(row['variational'])} | {_range(row['laplace'])} | {row['draws']:.0f} |"
        )
    print("\n".join(lines))
    if folder is None:
        return
    write_json(folder / "results.json", rows)
    write_text(folder / "results.md", "\n".join(lines) + "\n")


def compare(name: str, X: np.ndarray, y: np.ndarray, n_draws: int) -> dict:
    exact = gibbs_logistic(X, y, fit_intercept=True, n_samples=n_draws, n_burn_in=1000, random_state=0)
    model = BayesianLogisticRegression(prior=Gamma(1.0, 1.0)).fit(X, y)  # in units of the columns, as the sampler's
    return {
        "data": name,
        "n": len(y),
        "d": X.shape[1],
        "signal": float(model.decision_function(X).std()),
        "mean": float((np.abs(model.last_posterior_.mean - exact.mean) / exact.std).max()),
        "variational": (model.last_posterior_.std / exact.std).tolist(),
        "laplace": (model.laplace_posterior(X, y).std / exact.std).tolist(),
        "draws": float(exact.effective_sample_size().min()),
    }


def data_sets():
    """(name, X, y) of two generated data sets and two of scikit-learn's."""
    rng = np.random.default_rng(0)
    for name, n, w in (
        ("weak signal", 400, [0.4, -0.3, 0.2, 0.0, 0.1]),
        ("signal", 2000, [1.1, -0.8, 0.5, 0.0, 0.3, -0.6]),
    ):
        X = rng.normal(size=(n, len(w)))
        yield name, X, (rng.random(n) < expit(X @ w + 0.3)).astype(int)
    cancer, diabetes = load_breast_cancer(), load_diabetes()
    yield "breast cancer, 3 features", StandardScaler().fit_transform(cancer.data)[:, [1, 4, 9]], cancer.target
    yield (
        "diabetes progression > 140",
        StandardScaler().fit_transform(diabetes.data),
        (diabetes.target > 140).astype(int),
    )


def _range(values) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"
