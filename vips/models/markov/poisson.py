"""Hidden Markov model of sequences of counts, whose states are Poisson."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips._support.arguments import arguments, positive
from vips._support.validation import check_integer
from vips.models import _typical as typical
from vips.models._sequences import declared_of_steps
from vips.models.components.component import Kind
from vips.models.components.counts import Counts
from vips.models.components.declarations import Column
from vips.models.markov.hidden import HiddenMarkovModel, Words

__all__ = ["PoissonHMM"]

_MOST_COLUMNS = 48


@arguments
class PoissonHMM(HiddenMarkovModel):
    """Hidden Markov model of sequences of counts, fitted by (private) variational Bayes. One record is one whole sequence.

    Parameters
    ----------
    n_components : int
        K, the number of states.
    max_count : int or sequence of int
        Largest count, of all columns or of each. Public. A larger one counts as ``max_count``, because it still says that the
        rate is large.
    lambdas_prior, lambdas_weight : float or None
        Shape and rate of the Gamma prior of the rates, with the names of hmmlearn. None: 1 and 1/``max_count``.
    n_features : int or None
        Columns of every sequence: public. None takes those of X; a private fit to a list of arrays, whose widths may differ,
        needs it.
    typical_length : int
        Public. Length of a sequence that counts whole; longer ones weigh less.
    startprob_prior, transmat_prior, startprob_mask, transmat_mask, inference, max_length, dtype
        See :class:`CategoricalHMM`.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled. The first steps count neighbouring counts, from which states begin:
        write at least 30.
    schedule : RobbinsMonro, callable or None
        Step sizes of the states' steps, as a function of 2, 3, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds restarts in the computation of the first states, and where a non-private fit begins and what it samples. Noise is
        never seeded.

    Attributes
    ----------
    posterior_ : ColumnChainPosterior
        ``columns["counts"]`` are the rates. If the match of a private fit is accepted, they are those of the match, and
        ``draws`` holds draws of "shares" of the states, "start" and "moves".
    startprob_, transmat_, lambdas_ : ndarray of shape (K,), (K, K), (K, d)
        Of the match of a private fit, else posterior means.
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.* As :class:`CategoricalHMM`.

    What is no count (NaN, negative or not whole) is a missing cell, which the model handles exactly: it drops only its own
    column.

    A private fit is matched to its totals, as :class:`CategoricalHMM` is; missing cells are taken as independent of the states.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import PoissonHMM, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> ill = (rng.random((5000, 24)) < 0.15).cumsum(axis=1) % 2
    >>> visits = rng.poisson(np.where(ill, 6.0, 0.5))
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=40)
    >>> model = PoissonHMM(2, max_count=20, n_features=1, privacy=plan, random_state=0).fit(list(visits))
    >>> bool(abs(np.sort(model.lambdas_.ravel()) - [0.5, 6.0]).max() < 0.3)
    True
    """

    max_count: int | Sequence[int] | None = None
    lambdas_prior: float | None = positive(default=None)
    lambdas_weight: float | None = positive(default=None)
    n_features: int | None = None

    _words = Words("first states, moves and rates", "sums of the counts", "counts")

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        super().check_parameters()
        if self.max_count is None:
            raise ValueError(
                "`max_count` is required: bins of counts end there, and the largest count of private records would "
                "reveal one. Pass a public number, or one for each column, e.g. PoissonHMM(max_count=50, ...)."
            )
        largest = list(self.max_count) if isinstance(self.max_count, Sequence | np.ndarray) else [self.max_count]
        for of_column in largest:
            check_integer("max_count", of_column, 1, 10**9)

    def check_features(self) -> None:
        """Raise ValueError if there are no columns, more than pairs of counts can be counted of, or others than declared."""
        d = self.n_features_in_
        if not 1 <= d <= _MOST_COLUMNS:
            raise ValueError(f"PoissonHMM takes 1 to {_MOST_COLUMNS} columns, X has {d}.")
        if np.ndim(self.max_count) and len(self.max_count) != d:
            raise ValueError(f"`max_count` has {len(self.max_count)} numbers, and X has {d} columns.")

    def _declared(self) -> list[Column]:
        self.check_features()
        largest = np.broadcast_to(self.max_count, self.n_features_in_)
        return [Column(Counts, range(int(of_column) + 1)) for of_column in largest]

    def _component(self, limit: float, kind: type[Kind], declared: list[Sequence]) -> Counts:
        largest, is_em = np.array([counts[-1] for counts in declared]), self.inference == "em"
        shape = 0.0 if is_em else 1.0 if self.lambdas_prior is None else float(self.lambdas_prior)
        rate = 0.0 if is_em else 1.0 / largest if self.lambdas_weight is None else float(self.lambdas_weight)
        return Counts(tuple(map(int, largest)), shape, rate, limit)

    def steps_read(self, values: np.ndarray) -> tuple[np.ndarray, str]:
        return Counts.reads(values, ()), "counts, whole numbers from 0 on"

    def declared(self) -> tuple[str, ...]:
        return (
            f"max_count = {self.max_count}: larger counts are cut to it",
            f"number of columns: {self.n_features_in_}; {declared_of_steps(self)}",
        )

    @property
    def lambdas_(self) -> np.ndarray:
        """Rates of the counts in each state, shape (K, d)."""
        return self.posterior_.columns["counts"].mean

    def typical_steps(self, states: np.ndarray, n_features: int | None, rng: np.random.Generator) -> np.ndarray:
        d = typical.n_columns(self, self.n_features or n_features)
        largest = np.broadcast_to(10 if self.max_count is None else self.max_count, d)
        rates = typical.apart(0.05, 0.5, self.n_components, d, rng) * largest
        return np.minimum(rng.poisson(rates[states]), largest)
