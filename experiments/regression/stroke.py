"""``python -m experiments blr_stroke``: Figure 5 of the paper on generated records of the shape of its data, δ = 1e-4.

The paper's 12,586 patients by 4,146 features are not public. All methods run with 5 splits, except those with a full
covariance; ``--full`` runs one private fit with a full covariance, and reports its time and memory.
"""

from __future__ import annotations

import time

from sklearn.utils import Bunch

from experiments.benchmarks.lda import peak_mib
from experiments.regression import erm
from experiments.regression.compare import compare, options_for, split, unit_rows
from experiments.regression.methods import QUICK_SGD_PLANS, SGD_PLANS, auc, dp_sgd_method, non_private, ours, plan_for
from experiments.results import write_json
from vips import BayesianLogisticRegression
from vips.datasets import make_sparse_binary

DELTA, N_ACTIVE = 1e-4, 40
FULL_EPSILON, FULL_STEPS = 1.0, 20


def main(arguments: list[str]) -> None:
    flags = {"full": "one private fit with the full covariance, 4,146 by 4,146, instead of the table"}
    options = options_for("blr_stroke", arguments, __doc__.splitlines()[0], **flags)
    data = records(options.quick)
    X = unit_rows(data.data, N_ACTIVE)
    if options.full:
        full(X, data.target.astype(int), options)
        return

    def methods(train, labels):
        yield non_private("non-private, diagonal", covariance="diagonal")
        yield ours(DELTA, name="ours, diagonal", covariance="diagonal")
        yield dp_sgd_method(train, labels, DELTA, QUICK_SGD_PLANS if options.quick else SGD_PLANS)
        yield from erm.methods(options.diffprivlib, train, labels)

    compare(X, data.target, methods, DELTA, "Generated strokes", options)


def records(quick: bool) -> Bunch:
    """Generated records with their true coefficients; few records with few features in a quick run."""
    shape = {"n_records": 3000, "n_features": 200, "n_active": 20.0} if quick else {}
    return make_sparse_binary(random_state=0, **shape)


def full(X, y, options) -> None:
    """One fit with the full covariance, on split 0."""
    train, test = split(len(y), 0)
    result = {"epsilon": FULL_EPSILON, "delta": DELTA, "n_steps": FULL_STEPS, "before_mib": peak_mib()}
    start = time.perf_counter()
    plan = plan_for(FULL_EPSILON, DELTA, 1.0, FULL_STEPS)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X[train], y[train])
    result |= {"seconds": time.perf_counter() - start, "peak_mib": peak_mib()}
    result["auc"] = auc(y[test], model.decision_function(X[test]))
    print(f"full covariance, d = {X.shape[1]}: {result}")
    if options.folder is not None:
        write_json(options.folder / "full.json", result)
