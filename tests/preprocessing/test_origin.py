"""Pipelines without an intercept: expected values follow from columns of 0, as they are written, or the fit is refused."""

import datetime

import numpy as np
import pandas as pd
import pytest

from vips import (
    BayesianBinomialRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    PrivacyBudget,
    PrivacyLedger,
)
from vips.preprocessing import TableEncoder, make_private_pipeline

REGRESSIONS = [
    BayesianLinearRegression(target_range=(-3_000.0, 3_000.0), fit_intercept=False),
    BayesianLogisticRegression(fit_intercept=False),
    BayesianBinomialRegression(n_trials=2, fit_intercept=False),
    BayesianNegativeBinomialRegression(dispersion=2.0, max_count=5, fit_intercept=False),
]


def pipeline(model, columns):
    return make_private_pipeline(TableEncoder(columns), model, privacy=PrivacyBudget(1.0, 1e-6))


@pytest.mark.parametrize("model", REGRESSIONS, ids=lambda model: type(model).__name__)
def test_bounds_whose_middle_is_not_0_are_refused_before_a_charge(model, tmp_path):
    table = pd.DataFrame({"hours": [1.0, 2.0], "km": [3.0, 4.0]})
    ledger = PrivacyLedger(tmp_path / "table.ledger", 2.0, 1e-5, "table")
    with pytest.raises(ValueError, match=r"without an intercept .* 'km' are 0 to 500: .*\{'km': \(-500, 500\)\}"):
        pipeline(model, {"hours": (-60, 60), "km": (0, 500)}).fit(table, [0, 1], ledger=ledger)
    assert not ledger.runs()


def test_other_columns_without_a_0():
    model, table = REGRESSIONS[1], pd.DataFrame({"day": pd.to_datetime(["2020-01-01", "2021-01-01"])})
    for columns, bounds in (
        ({"day": (datetime.date(2019, 1, 1), datetime.date(2022, 1, 1))}, "2019-01-01 to 2022-01-01"),
        (None, "learnt"),
    ):
        with pytest.raises(ValueError, match=f"'day' are {bounds}: declare numbers with bounds around 0"):
            pipeline(model, columns).fit(table, [0, 1])


def test_the_advice_works():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"hours": rng.gamma(4.0, 2.0, 10_000), "km": rng.gamma(3.0, 20.0, 10_000)})
    table["paid"] = np.where(rng.random(10_000) < 0.5, "yes", "no")
    y = 30.0 * table.hours + 1.2 * table.km + rng.normal(0.0, 60.0, 10_000)
    columns = {"hours": (-60, 60), "km": (-500, 500), "paid": ["yes", "no"]}
    effects = pipeline(REGRESSIONS[0], columns).fit(table, y).summary().loc[["hours", "km"]]
    assert (np.abs(effects["mean"] - [30.0, 1.2]) < 6.0 * effects["std"]).all()
    assert (effects["std"] < [3.0, 0.3]).all()
