"""The bound that an ordinary fit to all records raises: no step of any model lowers it."""

import numpy as np
import pytest

from tests.laws import checks
from tests.laws.cases import CASES
from tests.plans import every
from tests.steps import with_updates

VARIANTS = {"inference": [{"inference": "vb"}, {"inference": "em"}], "dof": [{"inference": "em", "dof": "learn"}]}
FALLS = {
    "logistic diagonal": "steps may overshoot",
    "logistic sparse diagonal": "steps may overshoot",
    "mixture tied, EM-vb": "each component counts an equal share of the records, as in scikit-learn",
    "lda resampled, public documents-vb": "public documents are not among the records of the bound",
    "lda resampled, public documents-em": "public documents are not among the records of the bound",
    "factorial chain-em": "an E-step ends in one of several optima",
}


def fits():
    """Every way to learn; cases of a phase have another case of the same settings."""
    for case in CASES:
        model = case.make_model()
        if hasattr(model, "bound") and not case.phase:
            ways = [way for name in VARIANTS if name in model.get_params() for way in VARIANTS[name]]
            for way in ways or [{}]:
                name = "-".join([case.name, *way.values()])
                if name not in FALLS:
                    yield pytest.param(case, way, id=name)


@pytest.mark.parametrize(("case", "way"), [*fits()])
def test_the_bound_does_not_fall(case, way):
    model, posteriors = case.make_model(privacy=every(60), random_state=0).set_params(**way), []

    def noted(update):
        return lambda *state: posteriors.append(update(*state)) or posteriors[-1]

    records = case.make_records(60, np.random.default_rng(3))
    checks.fit(with_updates(model, noted), records)
    bounds = [model.bound(records, posterior) for posterior in posteriors]
    assert np.diff(bounds).min() > -1e-7 * abs(bounds[-1])
    assert bounds[-1] > bounds[0]
