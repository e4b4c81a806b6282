"""``how_many``: the number of components that the totals of one private fit tell of; of an ordinary one, its records.

The first is post-processing, at no budget; the second takes the least Bayesian information criterion of fits of each number.
Records of any number of components, seen by the E-steps of a fit of K, give totals that can be compared with the released ones.
So records of K, K - 1, … 1 components are matched to them, each number from the match of one more, of which two components are
merged. The best number has the least

    χ² + log |V| + 2.5 (free parameters)

where χ² + log |V| is -2 log likelihood of the totals, whose noise is part of V: see ``match.py``. A component that noise hides
explains too little to be counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from vips._support.extras import imported
from vips.models.components.matching.charts import Chart
from vips.models.components.matching.match import ACCEPTED, ChartMatch, match_near
from vips.models.components.matching.simulator import Simulator
from vips.models.components.matching.steps import totals_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["HowMany", "how_many"]

_MOST_MERGERS = 6  # of two components, that are tried
_TOLD = 10.0  # difference of criteria below which another number is as good
_NAT = 3.0  # difference of log evidences below which the smaller number is as good: a Bayes factor of 20


@dataclass(frozen=True)
class HowMany:
    """How well each number of components explains the released totals, or the records of an ordinary fit.

    Attributes
    ----------
    best : int
        The number whose criterion is least.
    criteria : dict of int to float
        By number, above that of the best; BIC of an ordinary fit. Differences below 10 tell little.
    misfits : dict of int to float
        How far the totals are from those of the best components, in standard deviations; above 3 they are not of so many. An
        ordinary fit has none.
    name : str
        What components are called.
    bounds : dict of int to float
        Evidence lower bounds of an ordinary fit with ``inference="vb"``; others have none.
    """

    best: int
    criteria: dict[int, float]
    misfits: dict[int, float]
    name: str
    bounds: dict[int, float] = field(default_factory=dict)

    def __str__(self) -> str:
        most = max(self.criteria)
        if not self.misfits:
            largest = max(self.bounds.values(), default=0.0)
            fewest = next((n for n, bound in self.bounds.items() if bound > largest - _NAT), None)
            bound = "" if fewest is None else f"; the bound is largest with {fewest}, to within {_NAT:g} nat"
            more = ": fit more to see whether there are others" if self.best == most else ""
            return f"BIC is least with {self.best} {self.name} of up to {most}{bound}{more}."
        if self.misfits[self.best] >= ACCEPTED:
            return (
                f"No number of {self.name} up to {most} explains the released totals, which are {self.misfits[self.best]:.1f} "
                f"standard deviations from those of {self.best}: the records are not of such {self.name}, or there are more."
            )
        others = [str(n) for n, above in self.criteria.items() if n != self.best and above < _TOLD]
        also = f" {' and '.join(others)} would explain the totals about as well." if others else ""
        if self.best == most:
            return f"The released totals tell of at least {most} {self.name}: fit more to see whether there are others.{also}"
        if self.best == 1:
            return f"The released totals tell of no different {self.name}; noise would hide some.{also}"
        return f"The released totals tell of {self.best} {self.name}; noise would hide others.{also}"

    def to_frame(self) -> pd.DataFrame:
        """A row for each number: "criterion", and "bound" or "misfit" where the fit has one."""
        pd = imported("pandas", "to_frame()")
        columns = {"criterion": self.criteria, "bound": self.bounds, "misfit": self.misfits}
        return pd.DataFrame({name: values for name, values in columns.items() if values}).rename_axis(self.name)

    def plot(self, ax: Axes | None = None) -> Axes:
        """A picture of the criterion by number, less that of the best.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        ax = ax or imported("matplotlib.pyplot", "plot()").subplots(layout="constrained")[1]
        numbers = list(self.criteria)
        ax.plot(numbers, list(self.criteria.values()), color="C0", marker="o")
        ax.axvline(self.best, color="0.5", linestyle=":")
        ax.set(xlabel=f"number of {self.name}", ylabel="criterion, above the best", xticks=numbers, yscale="symlog")
        return ax


def how_many(model, X=None) -> HowMany:
    """How many classes, mixture components or states the released totals of a private fit tell of, at no budget; of an ordinary
    one, the records.

    Fit more components than you expect: of a fit of K, numbers from 1 to K are compared. It takes about as long as K matches:
    ten seconds for six classes of ten columns; of an ordinary fit as K fits.

    Parameters
    ----------
    model : LatentClassAnalysis, MixedLatentClassAnalysis, BayesianGaussianMixture, CategoricalHMM, GaussianHMM or PoissonHMM
        Fitted with noise, so that it has a match (``model.match()``); or without.
    X : table or sequences, optional
        Records of an ordinary fit, as ``fit`` takes them, without weights.

    Returns
    -------
    HowMany
        Printed, it is a sentence. ``best``; ``to_frame()``, ``plot()``.

    Raises
    ------
    TypeError
        If it is another model.
    ValueError
        If an ordinary fit lacks its records, or a private one gets some.
    NotImplementedError
        If the fit is not matched: it says why.

    Privacy
    -------
    Of a private fit it reads released values only; an ordinary one promises nothing. A number that the
    first chooses may be used in any further fit, which is charged as always.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import LatentClassAnalysis, PrivacyPlan, how_many
    >>> rng = np.random.default_rng(0)
    >>> rural = rng.random(20_000) < 0.4
    >>> answers = (rng.random((20_000, 6)) < np.where(rural, 0.2, 0.7)[:, None]).astype(int)
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=20)
    >>> model = LatentClassAnalysis(4, categories=[2] * 6, privacy=plan, random_state=0).fit(answers)
    >>> told = how_many(model)
    >>> told.criteria[1] > told.criteria[2] + 1_000  # one class does not explain the totals
    True
    """
    if not hasattr(model, "simulator"):
        raise TypeError(
            f"how_many takes a fitted latent class model, Gaussian mixture or hidden Markov model, not {type(model).__name__}."
        )
    check_is_fitted(model)
    if (X is None) != hasattr(model, "noisy_totals_"):
        raise ValueError(
            "A fit without privacy keeps no records: how_many(model, X) fits every number anew."
            if X is None
            else "A private fit reads no records again: how_many(model) reads what it has released."
        )
    if X is not None:
        return _of_records(model, X)
    return model.once("how_many", lambda: _compared(model.simulator(), totals_of(model), model.match()))


def _of_records(model, X) -> HowMany:
    fits = [clone(model).set_params(n_components=n).fit(X) for n in range(1, model.n_components + 1)]
    values = {fit.n_components: fit.bic(X) for fit in fits}
    best = min(values, key=values.__getitem__)
    are_bounded = fits if model.inference == "vb" else []  # EM has its log likelihood, which grows with every component
    bounds = {
        fit.n_components: fit.bound(fit.records_of(X, None).arrays[0], fit.last_posterior_) for fit in are_bounded
    }
    return HowMany(
        best=best,
        criteria={n: value - values[best] for n, value in values.items()},
        misfits={},
        name=model.name_of_components,
        bounds=bounds,
    )


def _compared(simulator: Simulator, totals, match: ChartMatch) -> HowMany:
    match = match_near(simulator, totals, [match.charts]) or match  # as exact as those of the other numbers
    matches = {}
    while match is not None:
        matches[len(simulator.components(match.charts)[0])] = match
        match = match_near(simulator, totals, _mergers(simulator, match.charts))
    matches = dict(sorted(matches.items()))
    best = min(matches, key=lambda n: matches[n].criterion)
    return HowMany(
        best=best,
        criteria={n: of.criterion - matches[best].criterion for n, of in matches.items()},
        misfits={n: of.misfit for n, of in matches.items()},
        name=simulator.model.name_of_components,
    )


def _mergers(simulator: Simulator, charts: Sequence[Chart]) -> Iterator[list[Chart]]:
    """Charts of one component less, from the two that are nearest to each other, and so on."""
    shares, of_components = simulator.components(charts)
    apart = sum(chart.apart() for chart in of_components) * shares * shares[:, None] / (shares + shares[:, None])
    pairs = sorted(combinations(range(len(shares)), 2), key=lambda pair: apart[pair])
    for kept, merged in pairs[:_MOST_MERGERS]:
        into = np.arange(len(shares))
        into[merged] = kept
        yield simulator.merged(charts, np.unique(into, return_inverse=True)[1])
