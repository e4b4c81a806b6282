"""``python -m experiments blr_adult``: Figure 5 of the paper on UCI Adult, δ = 1e-5."""

from __future__ import annotations

from experiments.blr import erm, paper_recipe
from experiments.blr.compare import compare, options_for
from experiments.blr.methods import dp_sgd_method, non_private, ours
from vips.datasets import load_adult
from vips.preprocessing import TableEncoder

DELTA = 1e-5


def main(arguments: list[str]) -> None:
    options = options_for("blr_adult", arguments, __doc__)
    adult = load_adult()
    X = TableEncoder(adult.columns).fit_transform(adult.data)

    def methods(train, labels):
        yield from (non_private(), ours(DELTA), dp_sgd_method(train, labels, DELTA))
        yield from paper_recipe.methods(train, labels, DELTA)
        yield from erm.methods(options.diffprivlib, train, labels)

    compare("blr_adult", X, adult.target, methods, DELTA, "Adult: 48,842 people, 108 features", options)
