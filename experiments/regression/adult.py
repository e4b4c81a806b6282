"""``python -m experiments blr_adult``: Figure 5 of the paper on UCI Adult, δ = 1e-5."""

from __future__ import annotations

from experiments.regression import erm, paper_recipe
from experiments.regression.compare import QUICK_RECORDS, compare, options_for
from experiments.regression.methods import QUICK_SGD_PLANS, SGD_PLANS, dp_sgd_method, non_private, ours
from experiments.stand_ins import adult
from vips.preprocessing import TableEncoder

DELTA = 1e-5


def main(arguments: list[str]) -> None:
    options = options_for("blr_adult", arguments, __doc__, "data")
    people, n_records = adult(options.quick and not options.data), QUICK_RECORDS if options.quick else None
    encoder = TableEncoder(people.columns)
    X = encoder.fit_transform(people.data[:n_records])

    def methods(train, labels):
        plans = QUICK_SGD_PLANS if options.quick else SGD_PLANS
        yield from (
            non_private(),
            ours(DELTA, indicators=encoder.indicators),
            dp_sgd_method(train, labels, DELTA, plans),
        )
        yield from paper_recipe.methods(train, labels, DELTA)
        yield from erm.methods(options.diffprivlib, train, labels)

    compare(X, people.target[:n_records], methods, DELTA, "Generated people" if people.generated else "Adult", options)
