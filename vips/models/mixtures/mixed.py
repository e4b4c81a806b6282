"""Latent classes of a table of numbers, counts and categories.

    w ~ Dirichlet(α, …, α),   z_n | w ~ Categorical(w)         K classes
    x_nj | z_n ~ normal, Poisson, or categorical               by the kind of column j (``vips/models/components``)

Missing cells are left out of a record's likelihood, which is exact if they are missing at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vips._support.arguments import arguments, number, positive
from vips.core.exact.blas import eigh
from vips.core.phases import FitPhase, plain_average, unchanged
from vips.core.records.source import DataSource
from vips.core.sums import Block
from vips.core.sums.classes import ClassStatistics
from vips.models._starts import best_start, clusters
from vips.models.components.columns import Columns
from vips.models.components.declarations import Column, column_of_any_kind, columns_declared
from vips.models.mixtures.contract import LatentClasses, dense_rows
from vips.models.mixtures.posterior import ClassPosterior

__all__ = ["MixedLatentClassAnalysis"]

_FIRST_STEPS = 4  # with the marginals, and with the moments, at most
_MOST_MEANS = 1_000  # where classes begin in the directions of the moments
_SPREAD = 0.5  # else, how far from the marginals
_ITERATIONS, _TURNS = 20, 200  # of the directions
_LEAST = 1e-12  # of a probability, before its logarithm
_CLIP = 1.0  # of the norm of a record whose numbers and counts are one standard deviation from the mean
_EXAMPLE = '{"age": (18, 100), "visits": range(51), "sex": ["f", "m"]}'


@arguments
class MixedLatentClassAnalysis(LatentClasses):
    """Latent classes of a table of numbers, counts and categories, fitted by (private) variational Bayes.

    Parameters
    ----------
    n_components : int
        K, the number of classes.
    columns : mapping or sequence
        Of each column: a tuple (low, high) of public bounds for a number, which is cut to them; ``range(n)`` for a count, where
        larger ones count as n - 1; a list of categories, or n for the codes 0 to n - 1. A mapping by name of the columns of a
        data frame, whose other columns are left out; or one entry for each column. Required: what is read from the records
        reveals the rarest of them.
    number_prior : float
        As how many records, that are like all records together, the prior of a number's mean and variance and of a count's
        rate counts.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled. The first steps release marginals and second moments, at which classes
        begin, so a plan needs several steps.
    clip_share : float
        Clip norm of a plan without one, as a share of the norm of a record whose numbers and counts are as far from the mean
        as records are on average.
    class_prior, answer_prior, inference, schedule, on_invalid, random_state
        See :class:`LatentClassAnalysis`. What is no value of its column is a missing cell.

    Attributes
    ----------
    posterior_ : ClassPosterior
        ``weights``, and in ``columns`` "numbers", "counts" and "answers".
    weights_, components_, privacy_, n_features_in_, feature_names_in_
        See :class:`LatentClassAnalysis`.

    Notes
    -----
    *Privacy.* As :class:`LatentClassAnalysis`; bounds of numbers and counts are public, too.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips import MixedLatentClassAnalysis, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> retired = rng.random(6000) < 0.4
    >>> table = pd.DataFrame({
    ...     "age": np.where(retired, rng.normal(75, 6, 6000), rng.normal(40, 10, 6000)),
    ...     "visits": rng.poisson(np.where(retired, 8, 2)),
    ...     "income": np.where(rng.random(6000) < np.where(retired, 0.9, 0.1), "pension", "wage"),
    ... })
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=40)
    >>> columns = {"age": (18, 100), "visits": range(31), "income": ["wage", "pension"]}
    >>> model = MixedLatentClassAnalysis(2, columns=columns, privacy=plan, random_state=0).fit(table)
    >>> bool(abs(np.sort(model.summary()["mean age"]) - [40, 75]).max() < 3)
    True
    """

    columns: Mapping | Sequence | None = None
    number_prior: float = positive(default=1.0)
    clip_share: float = number(0.0, 10.0, "above 0, and at most 10", default=_CLIP, open_low=True)

    argument = "columns"

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        self._declared()

    def blocks(self) -> dict[str, Block]:
        return self._blocks_of_marginals() | self._blocks_of_moments() | self._blocks_of_classes()

    def phases(self, n_steps: int) -> list[FitPhase]:
        """In a private fit marginals of all columns, and second moments, which say in which directions classes differ; then the
        classes."""
        n_first = max(min(_FIRST_STEPS, n_steps // 8), 1) if self.is_private else 0
        n_second = min(n_first if self._blocks_of_moments() else 0, n_steps - n_first)
        average = {"update": unchanged, "step_size": plain_average}
        marginals = FitPhase(
            "marginals",
            n_first,
            blocks=list(self._blocks_of_marginals()),
            statistics="_marginal_statistics",
            end=self._classes_of_marginals,
            released="noisy counts of answers, and of numbers and counts in public bins",
            **average,
        )
        moments = FitPhase(
            "moments",
            n_second,
            blocks=list(self._blocks_of_moments()),
            statistics="_moment_statistics",
            end=self._classes_of_moments,
            released="noisy second moments of answers, numbers and counts",
            **average,
        )
        classes = FitPhase(
            "classes",
            n_steps - n_first - n_second,
            blocks=list(self._blocks_of_classes()),
            step_size=self.step_size,
            released="noisy counts of classes and of their answers, and noisy moments of their numbers and counts",
        )
        return [marginals, moments, classes]

    def begin(self, records: DataSource) -> ClassPosterior | None:
        """Begin at clusters of the records, or around their marginals."""
        return best_start(self, records, self._starts)

    def _starts(self, records, weights: np.ndarray, rng: np.random.Generator) -> list[ClassPosterior]:
        values, columns, K = dense_rows(records), self._columns(), self.n_components
        cells = columns.cells(values)
        columns = columns.framed_by(cells, weights)
        rows, places, statistics = columns.rows(values), columns.places(values), columns.statistics(cells)
        nothing = np.zeros((K, columns.n_means)), np.zeros(columns.n_marginals)
        starts = []
        for _ in range(2):
            shares = clusters(statistics[:, columns.means], np.ones(len(values)), K, rng)
            sums = ClassStatistics(shares, rows, places, columns.width).weighted_sum(weights)
            starts.append(self._posterior(np.hstack([sums["count"][:, None], sums["cells"]]), columns, *nothing))
        marginals = weights @ columns.bins.indicators(cells)
        draws = _SPREAD * rng.standard_normal(nothing[0].shape)
        return [*starts, self._posterior(columns.begun(weights.sum(), marginals, draws), columns, *nothing)]

    def _marginal_statistics(self, records, posterior: ClassPosterior) -> ClassStatistics:
        """Indicators of the bins of all columns."""
        columns = self._columns()
        indicators = columns.bins.indicators(columns.cells(np.asarray(records)))
        everybody, no_places = np.ones((len(indicators), 1)), np.empty((len(indicators), 0), np.int32)
        return ClassStatistics(everybody, indicators, no_places, 0, (None, "marginals"))

    def _moment_statistics(self, records, posterior: ClassPosterior) -> ClassStatistics:
        """Products of all pairs of means."""
        columns = self._columns(posterior.frame)
        means = np.ascontiguousarray(columns.statistics(columns.cells(np.asarray(records)))[:, columns.means])
        no_places = np.empty((len(means), 0), np.int32)
        return ClassStatistics(means, means, no_places, 0, (None, "moments"))

    def _classes_of_marginals(self, average, noise_std, previous: ClassPosterior) -> ClassPosterior:
        """Coordinates in which all records have mean 0 and variance 1, and classes that differ by draws alone."""
        columns = self._columns()
        marginals = columns.bins.counts(average["marginals"][0], noise_std["marginals"])
        spread = 0.0 if self.n_components == 1 else _SPREAD
        framed = columns.framed(marginals)
        return self._begun(framed, marginals, spread * previous.draws, previous)

    def _classes_of_moments(self, average, noise_std, previous: ClassPosterior) -> ClassPosterior:
        """Classes that differ in the directions in which records vary together, turned so that they fit the marginals best."""
        columns, marginals, K = self._columns(previous.frame), previous.marginals, self.n_components
        size = self._size(columns, marginals)
        means = columns.begun(size, marginals, np.zeros((1, len(columns.means))))[0, 1 + columns.means] / size
        moments = average["moments"] / size - np.outer(means, means)
        directions = _directions(moments, columns.columns_of_means(), K - 1)
        rng, best = np.random.default_rng(np.abs(previous.draws).view(np.uint64).sum()), None
        for _ in range(_TURNS):
            turned = np.linalg.qr(np.hstack([np.ones((K, 1)), rng.standard_normal((K, K - 1))]))[0][:, 1:]
            begun = self._begun(
                columns, marginals, np.sqrt(K) * turned[:, : directions.shape[1]] @ directions.T, previous
            )
            fit = marginals @ np.log(np.maximum(columns.chances(begun.columns).mean(axis=0), _LEAST))
            best = max(best or (fit, begun), (fit, begun), key=lambda one: one[0])
        return best[1]

    def _begun(self, columns: Columns, marginals, offsets, previous: ClassPosterior) -> ClassPosterior:
        """Classes of equal size around the marginals."""
        totals = columns.begun(self._size(columns, marginals), marginals, offsets)
        return self._posterior(totals, columns, previous.draws, marginals)

    def _size(self, columns: Columns, marginals: np.ndarray) -> float:
        """Number of records: that of the cells in the column with most of them."""
        return max(float(np.add.reduceat(marginals, columns.bins.starts[:-1]).max()), 1.0)

    # -- comparisons --------------------------------------------------------------------------------------------

    def components(self, posterior: ClassPosterior) -> tuple[np.ndarray, str]:
        """Classes are matched by means and deviations of numbers in those of all records, and by roots of rates and of
        probabilities."""
        return self._columns(posterior.frame).features(posterior.columns), "euclidean"

    # -- columns ------------------------------------------------------------------------------------------------

    def _declared(self) -> list[Column]:
        return columns_declared("columns", self.columns, column_of_any_kind, _EXAMPLE)

    def _number_prior(self) -> float:
        return 0.0 if self.inference == "em" else float(self.number_prior)

    # -- steps --------------------------------------------------------------------------------------------------

    def _blocks_of_marginals(self) -> dict[str, Block]:
        columns = self._columns()
        return {
            "marginals": Block((1, columns.n_marginals), scale=float(np.sqrt(columns.n_columns)) / self.default_clip())
        }

    def _blocks_of_moments(self) -> dict[str, Block]:
        """None with one class, and where they would be very many."""
        columns = self._columns()
        n = columns.n_means
        if self.n_components == 1 or n > _MOST_MEANS:
            return {}
        return {"moments": Block((n, n), symmetric=True, scale=columns.n_columns / self.default_clip())}


def _directions(moments: np.ndarray, columns: np.ndarray, n: int) -> np.ndarray:
    """Largest eigenvectors times roots of eigenvalues, shape (n_means, at most n), of moments between different columns.

    Those within a column are not of the classes alone: in their place come those that the directions imply.
    """
    within, moments, vectors = columns[:, None] == columns, moments.copy(), np.zeros((len(moments), 0))
    for _ in range(_ITERATIONS):
        moments[within] = (vectors @ vectors.T)[within]
        values, vectors = eigh(moments)
        vectors = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, -n:]
    return vectors
