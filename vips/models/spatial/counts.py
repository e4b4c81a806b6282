"""Counts of people in declared areas, in one sum by area: rates, and a map that says which of them noise hides."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from scipy.spatial import Voronoi
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, whole
from vips._support.extras import imported
from vips._support.validation import levels_to_user
from vips.core.exact.blas import threads_for
from vips.core.plan import PrivacyPlan
from vips.core.records.partition import Records
from vips.core.records.source import DataSource
from vips.core.records.tables import from_arrow
from vips.core.sums import Block, DenseStatistics
from vips.data._columns import as_table
from vips.data._dask import as_source
from vips.exceptions import PrivacyWarning
from vips.model import ConjugateExponentialModel
from vips.models._coefficients import count_scores
from vips.models._exposures import (
    MOST,
    check_counts,
    check_planned,
    counts_and_exposures,
    score_of_counts,
    times_exposure,
    with_exposure,
)
from vips.models.spatial.areas import Areas
from vips.models.spatial.fields import SMOOTHNESS, STDS, Fields
from vips.models.spatial.smoothing import FieldPosterior, smoothed
from vips.parts import Part, last_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["SpatialCounts"]

# Norm of the largest exposure in a record's vector, and of each largest square; that of the largest count is 1.
_EXPOSURE_NORM, _SQUARE_NORM = 0.5, 0.2
_TYPICAL_SMOOTHNESS = 0.9
# Left-open share from which on an area is hidden.
_HIDDEN = 0.5
_MARGIN = 0.05  # around coordinates on a map, relative to their range


class _Sums(DenseStatistics):
    """Counts and exposures by area, and their squares; with weights, which the engine multiplies by, once more these."""

    def weigh(self, sample_weights: np.ndarray) -> None:
        super().weigh(sample_weights)
        self.arrays["squares"] = self.arrays["squares"] * sample_weights[:, None]


@arguments
class SpatialCounts(RegressorMixin, ConjugateExponentialModel):
    """Rates of declared areas from counts of their people, smoothed over the map.

    A count of a person in area a is negative binomial with mean exposure · exp(c + f_a); f is a Gaussian field over the areas,
    whose size and smoothness are learnt, as is the dispersion of counts. One noisy sum of all records is released.

    Parameters
    ----------
    areas : mapping of name to neighbours, or sequence of names
        Public. All areas, also those where nobody lives. Names are whole numbers or strings.
    coordinates : array of shape (n_areas, 2), optional
        Where areas lie, if ``areas`` are names alone: the six nearest are then neighbours. Without both, areas are independent.
    area : str, optional
        Name of the column of X that holds the areas; others are left out. Not needed where it is the only one.
    dispersion : float or None
        r: the variance of a count of mean m is m + m²/r. None learns it. Public.
    max_count, exposure_bounds
        See :class:`BayesianNegativeBinomialRegression`.
    privacy : PrivacyBudget, PrivacyPlan, StreamPlan or None
        None is a non-private fit. One full-batch step is enough; further steps are averaged.
    on_invalid : {"drop", "raise"}
        What a private fit does with a record of no declared area, or whose count or exposure is none.
    random_state : object
        Not used.

    Attributes
    ----------
    posterior_ : Gaussian
        Of the areas' log rates, in their order; noise is in it.
    areas_ : list
        Names of the areas.
    privacy_ : PrivacyReport

    Notes
    -----
    ``fit`` takes a series or array of areas' names, of any type: 7, 7.0 and "7" are one; or a table with the column ``area``. A
    private fit leaves out records of no declared area; an ordinary one refuses them, and reads lists, too. A data source has
    one column of numbers: the areas' names where all are whole numbers, else their places, from 0. y holds counts: 0 or 1 for
    one event. An exposure may also say how large a count is expected to be from what is known of the person: rates are then
    relative to that.

    *Privacy.*
    Unit: one row of X with its count. Relation: add or remove one. Released: noisy sums of counts, of exposures and of their
    squares. Public by declaration: the areas and their neighbours, ``max_count``, ``exposure_bounds``. Which areas have people
    is not public, and is not revealed.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import PrivacyBudget, SpatialCounts
    >>> rng, row = np.random.default_rng(0), {a: [b for b in (a - 1, a + 1) if 0 <= b < 20] for a in range(20)}
    >>> area = rng.integers(20, size=20_000)
    >>> visits = rng.poisson(np.exp(np.sin(area / 3.0)))
    >>> model = SpatialCounts(areas=row, max_count=10, privacy=PrivacyBudget(1.0, 1e-6)).fit(area, visits)
    >>> rates = model.rates()
    >>> bool(rates.loc[5, "rate"] > 2.0 * rates.loc[14, "rate"])
    True
    """

    areas: Mapping | Sequence | np.ndarray = ()
    coordinates: object = None
    area: str | None = None
    dispersion: float | None = None
    max_count: int | None = whole(default=None, high=MOST)
    exposure_bounds: tuple[float, float] | None = None
    on_invalid: str = "drop"

    unit = "one row of X with its count"
    needs_labels = True
    takes_one_label = True
    planned_steps = 1  # every step would release the same sums
    small_trials = False  # few records are drawn to their neighbours more than many
    adds_up = True
    exact_rows = True
    reads_tables = True
    settings_of_meaning = ("areas",)
    _beside = ("exposure", "sample_weight")
    _read = None  # during a fit
    with_exposure = with_exposure

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        self._map()
        check_counts(self, learns_dispersion=True)

    def use_plan(self, plan: PrivacyPlan | None) -> None:
        super().use_plan(plan)
        self._read = None if plan is None else self._map()  # that of a model in another process is sent

    def prepare(self, posterior) -> None:
        self._map().mixing  # noqa: B018

    def check_features(self) -> None:
        if self.n_features_in_ != 1:
            raise ValueError(
                f"SpatialCounts takes one column, of areas, got {self.n_features_in_}. What is known of persons besides goes "
                "into `exposure`, as the count that is expected of them."
            )

    def blocks(self) -> dict[str, Block]:
        (most, longest), n_areas = self._largest, len(self._map().names)
        return {
            "counts": Block((n_areas,), scale=most),
            "exposures": Block((n_areas,), scale=longest / _EXPOSURE_NORM),
            "squares": Block((self._n_squares,), scale=1.0 / _SQUARE_NORM),
        }

    def valid_records(self, records: Records) -> np.ndarray:
        counts, exposures = counts_and_exposures(records.y, self.max_count, self.exposure_bounds)
        return (self._places(records.X) >= 0) & np.isfinite(counts) & np.isfinite(exposures)

    def expected_statistics(self, records: Records, posterior) -> DenseStatistics:
        """y M_a, and e at place a; squares relative to the largest."""
        areas, (most, longest) = self._map(), self._largest
        places = self._places(records.X)
        counts, exposures = counts_and_exposures(records.y, self.max_count, self.exposure_bounds)
        squares = (counts / most) ** 2, (exposures / longest) ** 2, exposures / longest
        at_place = np.zeros((len(places), len(areas.names)))
        at_place[np.arange(len(places)), places] = exposures
        return _Sums({
            "counts": counts[:, None] * areas.mixing[places],
            "exposures": at_place,
            "squares": np.column_stack(squares[: self._n_squares]),
        })  # fmt: skip

    def to_posterior(self, average, noise_std, previous) -> FieldPosterior:
        """Posterior of the log rates given the noisy sums: ``smoothing.py``."""
        areas = self._map()
        if not average["exposures"].any():
            return FieldPosterior.of_nothing(len(areas.names))
        (most, longest), plan = self._largest, self.plan_of_fit()
        units = np.array([most**2, longest**2, longest])[: self._n_squares]
        noise = noise_std["counts"], noise_std["exposures"], noise_std["squares"] * units
        counts = solve_triangular(areas.mixing, average["counts"], trans="T", lower=True)
        sums = counts, average["exposures"], average["squares"] * units
        none_stated = (1.0, 1.0) if self.is_private else (1e-300, 1e300)
        bounds = none_stated if self.exposure_bounds is None else self.exposure_bounds
        like_one = (plan.max_rows_per_group or 1) * (1.0 + (1.0 / plan.sampling_rate - 1.0) / plan.n_steps)
        with threads_for(areas.borders):
            return smoothed(*sums, noise, Fields(areas.borders), bounds, self.dispersion, like_one)

    def to_noise_aware_posterior(self) -> FieldPosterior:
        return self.last_posterior_

    def step_size(self, t: int) -> float:
        """1/t: every step sees the same sums."""
        return 1.0 / t

    def max_record_norm(self) -> float:
        """Norm of the largest count with the longest exposure; ``inf`` without a ``max_count``."""
        if self.max_count is None:
            return np.inf
        return float(np.sqrt(1.0 + _EXPOSURE_NORM**2 + self._n_squares * _SQUARE_NORM**2)) * (1.0 + 1e-8)

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """One full-batch step."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=1)

    def default_chunk_size(self) -> int:
        """About 30 MB for each of the two sums."""
        return max(64, 4_000_000 // max(len(self.areas), 1))

    def records_of(self, X, y) -> DataSource:
        """Codes of areas, and counts."""
        return super().records_of(self._codes(X, not self.is_private), y)

    def as_numbers(self, X) -> object:
        return self._codes(X, True)

    def read_rows(self, X, *y, **settings):
        return super().read_rows(self._codes(X, True), *y, **settings)

    def check_values(self, X, y) -> None:
        if np.isnan(counts_and_exposures(y, None, None)[0]).any():
            raise ValueError("y must hold whole numbers from 0 on.")

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": (
                "noisy sums of counts and of exposures by area, and of their squares over all areas",
                "hence the posterior of the areas' rates",
            ),
            "declared_public": (
                f"{len(self._map().names)} areas, and which are neighbours; a record of no declared area counts for nothing",
                f"max_count = {self.max_count}",
                *(() if self.exposure_bounds is None else (f"exposures between {self.exposure_bounds}",)),
                f"dispersion = {self.dispersion}",
            ),
        }

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        check_planned(self)
        n_areas, most = len(self._map().names), self.max_count or 10
        field = np.linalg.cholesky(self._map().correlation(_TYPICAL_SMOOTHNESS)) @ rng.standard_normal(n_areas)
        places = rng.integers(n_areas, size=n_records)
        counts = rng.poisson(0.1 * most * np.exp(0.5 * field[places]) * rng.gamma(2.0, 0.5, n_records))
        return np.array(self._map().names, dtype=object)[places, None], np.minimum(counts, most)

    # -- what users read ----------------------------------------------------------------------------------------

    @property
    def areas_(self) -> list:
        check_is_fitted(self, "last_posterior_")
        return list(self.areas)

    def rates(self, level: float = 0.95) -> pd.DataFrame:
        """Rates of all areas, also of those without anybody.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            One row for each area: "rate" (posterior mean of the expected count for an exposure of 1), "lower", "upper"; "left
            open" (share of what could be expected of the area before its map was seen, as a variance of its log rate about the
            average, that is still open); "noise" (share of noise in the variance of its own count); "hidden by", empty where
            less than half is left open, else what hides the area: "noise" if that is more than half of the variance of its own
            count, else "few records". In a private fit an area that hides behind noise may have many people, few, or none.

        Warns
        -----
        PrivacyWarning
            If more than half of the areas of a private fit are hidden: their intervals rest on how smooth the map is.
        """
        pd = imported("pandas", "rates()")
        posterior = self.posterior_
        lower, upper = posterior.interval(level)
        hidden = np.where(posterior.noise_share > 0.5, "noise", "few records")
        table = pd.DataFrame(
            {
                "rate": np.exp(posterior.mean + 0.5 * posterior.var),
                "lower": np.exp(lower),
                "upper": np.exp(upper),
                "left open": posterior.open_share,
                "noise": posterior.noise_share,
                "hidden by": np.where(posterior.open_share > _HIDDEN, hidden, ""),
            },
            index=pd.Index(self.areas_, name=self.area or "area"),
        )
        table.attrs["level"] = level
        n_hidden = int((table["hidden by"] != "").sum())
        if n_hidden > _HIDDEN * len(table) and self.privacy_.plan.is_private:
            warnings.warn(
                f"{n_hidden} of {len(table)} areas cannot be told from their neighbours, or from a common rate. How much such "
                "areas differ is then hardly known, either: their intervals hold if the map is smooth, and too seldom if it is "
                "not, when in one map of six less than 0.8 of all areas held (docs/spatial.md). A larger ε, more people, "
                "larger areas or a lower `max_count` would show more.",
                PrivacyWarning,
                stacklevel=levels_to_user(),
            )
        return table

    summary = rates

    def findings(self) -> dict[str, float]:
        """Posterior means of what holds for the whole map: standard deviation of the areas' log rates; smoothness ρ, from 0 of
        independent areas to 1; dispersion of counts."""
        posterior, spreads = self.posterior_, np.sqrt(Fields(self._map().borders).centred_variances.mean(axis=1))
        return super().findings() | {
            "spread of log rates": float(spreads @ posterior.grid @ STDS),
            "smoothness of the map": float(SMOOTHNESS @ posterior.grid.sum(axis=1)),
            "dispersion of counts": float(posterior.dispersion),
        }

    def plot(self, outlines: Mapping | None = None, *, ax: Axes | None = None) -> Axes:
        """A map: each area in the colour of its rate, and those that are hidden hatched.

        Parameters
        ----------
        outlines : mapping of name to array of shape (n_points, 2), optional
            Corners of each area. None draws the cells around ``coordinates``.
        ax : matplotlib.axes.Axes, optional
        """
        rates, plt = self.rates(), imported("matplotlib.pyplot", "plot()")
        from matplotlib.colors import LogNorm
        from matplotlib.patches import Patch, Polygon

        if outlines is None and self.coordinates is None:
            raise ValueError("Areas without `coordinates` need `outlines`: a mapping of their names to corners.")
        shapes = _cells_around(self.coordinates) if outlines is None else [outlines[name] for name in rates.index]
        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 5.0), layout="constrained")
        colours, values, are_hidden = plt.get_cmap("viridis"), rates["rate"].to_numpy(), rates["hidden by"] != ""
        norm = LogNorm(values.min() / 1.01, values.max() * 1.01)
        for shape, value, hidden in zip(shapes, values, are_hidden, strict=True):
            look = {"hatch": "////", "edgecolor": "0.85"} if hidden else {"edgecolor": "white"}
            ax.add_patch(Polygon(shape, facecolor=colours(norm(value)), linewidth=0.6, **look))
        ax.autoscale_view()
        ax.set_aspect("equal")
        ax.set_axis_off()
        bar = ax.figure.colorbar(plt.cm.ScalarMappable(norm, colours), ax=ax, label="rate", shrink=0.8, format="%.2g")
        bar.ax.yaxis.set_minor_formatter("{x:.2g}")
        if are_hidden.any():
            label = f"hidden: {are_hidden.sum()} of {len(rates)} areas, of which more than half is left open"
            hatched = Patch(facecolor="0.6", edgecolor="0.85", hatch="////", label=label)
            ax.legend(handles=[hatched], loc="upper center", bbox_to_anchor=(0.5, 0.02), frameon=False)
        return ax

    def predict(self, X, exposure=1.0) -> np.ndarray:
        """Posterior mean of the expected counts, shape (n_records,): exposure times the rate of the area."""
        check_is_fitted(self)
        places, posterior = self._places(self.read_rows(X, reset=False)), self.posterior_
        return times_exposure(exposure, np.exp(posterior.mean + 0.5 * posterior.var)[places])

    score, predictions, held_out_scores = score_of_counts, predict, count_scores

    def posterior_parts(self, posterior) -> list[Part]:
        """Log rates by area."""
        names = [f"log rate of {name}" for name in self._map().names]
        return [Part("log rates", posterior, partial(last_of, names), names)]

    # -- helpers ------------------------------------------------------------------------------------------------

    def _map(self) -> Areas:
        """The declared areas, read once for each fit."""
        return self._read or Areas.of(self.areas, self.coordinates)

    @property
    def _largest(self) -> tuple[float, float]:
        """Count and exposure, in whose units squares are summed; 1 where they are not bounded."""
        return float(self.max_count or 1), 1.0 if self.exposure_bounds is None else float(self.exposure_bounds[1])

    @property
    def _n_squares(self) -> int:
        return 2 if self.plan_of_fit().max_weight is None else 3

    def _codes(self, X, refuses: bool) -> object:
        """X with codes of areas, NaN where there is none, shape (n_records, 1); a data source as it is."""
        X = from_arrow(X)
        if as_source(X) is not None:
            return X
        if sp.issparse(X):
            raise TypeError("X holds the area of each record: pass a series, array or data frame, not a sparse matrix.")
        if hasattr(X, "columns"):
            n_columns = len(X.columns)
            if self.area is None and n_columns != 1:
                raise ValueError(f"X has {n_columns} columns: say which one holds the areas, SpatialCounts(area=...).")
            if self.area is not None and self.area not in X.columns:
                raise ValueError(f"X has no column {self.area!r}, which is to hold the areas.")
            X = X.iloc[:, 0] if self.area is None else X[self.area]
        if isinstance(X, list | tuple) and refuses:
            X = np.array(X, dtype=object)  # of text would make text of all
        if not hasattr(X, "shape"):  # whether the items of a list are areas, or rows of a table, depends on records
            X = as_table(X)
        if len(X.shape) == 2 and X.shape[1] == 1:
            X = X[:, 0]
        if len(X.shape) != 1:
            raise ValueError(f"X must hold one area for each record, shape (n_records,), got shape {X.shape}.")
        codes = self._map().codes_of(X)
        if refuses and np.isnan(codes).any():
            first = str(list(X)[int(np.isnan(codes).argmax())])
            n_lost = np.isnan(codes).sum()
            raise ValueError(f"{n_lost:,} records are in no declared area: {first!r}, say. Add it to `areas`.")
        return codes[:, None]

    def _places(self, X: np.ndarray) -> np.ndarray:
        X = X.toarray() if sp.issparse(X) else X
        return self._map().places_of(X[:, 0].astype(np.float64))


def _cells_around(coordinates) -> list[np.ndarray]:
    """Corners of the cells around points, within a rectangle, at whose sides points are mirrored."""
    points = np.asarray(coordinates, dtype=np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = _MARGIN * np.maximum(high - low, 1e-9)
    low, high = low - margin, high + margin
    mirrored = [points]
    for axis, side in ((axis, side) for axis in (0, 1) for side in (low, high)):
        other = points.copy()
        other[:, axis] = 2.0 * side[axis] - other[:, axis]
        mirrored.append(other)
    voronoi = Voronoi(np.concatenate(mirrored))
    return [voronoi.vertices[voronoi.regions[region]] for region in voronoi.point_region[: len(points)]]
