"""What private regressions that search pass from step to step, all of it released: coordinates, a point, and kept steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import scipy.sparse as sp

from vips.core.phases import FitPhase
from vips.core.plan import PrivacyPlan
from vips.core.sums import Block
from vips.core.sums.outer import Rows
from vips.core.sums.regressions import SQUARES_SCALE, RegressionSums
from vips.models._coordinates import Zooms
from vips.models._newton import Released

__all__ = [
    "MOST_BENDS", "KeptSteps", "Search", "before_adapted", "blocks_of_scores", "fitting_size", "phase_of_scores", "scores_at",
]  # fmt: skip

_BLOCKS = ("linear", "precision", "squares")
_TOO_LARGE = 1e18  # of files, which hold sums over records, and noise
# Most places for what steps release, and numbers in the information of all; the fewest places.
_MOST_KEPT, _MOST_NUMBERS, _FEWEST_KEPT = 64, 2**20, 4
# Scale of the information beside that of scores: with many columns it is the noisiest block.
_INFORMATION, _INFORMATION_OF_MANY = 0.7, 2.0
# Scale of the tilt.
_TILT = 1.0
# Scale of bends, and the most coefficients with which they stand out from noise.
_BENDS, MOST_BENDS = 3.0, 40
_MOST_OF_SQUARES = 2.0  # c
# Noise of the averaged scores over their variance by sampling, which sets C: without long tails, and with any, in a fit of so
# many columns; how fast it grows with the ratio that tells tails, from that of nearly normal columns on.
_RATIO, _OF_TAILS, _FEW_COLUMNS, _BY_TAILS, _NO_TAIL = 0.1, 0.4, 20, 0.5, 1.3
# Ratios of squares to information: rows of a person may be alike; weights make squares small.
_RATIOS, _LEAST_OF_WEIGHTS = (0.3, 25.0), 0.02
# Longest move of the point at which a step takes scores.
_LONGEST = 4.0
_ADAPTED = 3  # part of the scores after which C follows from what was released


@dataclass(frozen=True)
class KeptSteps:
    """What steps released in the same coordinates of rows. Steps next to each other may share a place: averages.

    Parameters
    ----------
    points, scores, squares : ndarray of shape (n_outputs, n_places, d)
        Coefficients at which the steps of each place were computed, and what they released there.
    tilts : ndarray of shape (n_outputs, n_places, d or 0)
    informations : ndarray of shape (n_outputs, n_places, d, d)
    counts : ndarray of shape (n_places,)
        Numbers of these steps.
    sizes : ndarray of shape (n_places,)
        Averages of C².
    """

    points: np.ndarray
    scores: np.ndarray
    squares: np.ndarray
    tilts: np.ndarray
    informations: np.ndarray
    counts: np.ndarray
    sizes: np.ndarray

    @classmethod
    def none(cls, n_outputs: int, n_places: int, d: int, tilts: bool) -> KeptSteps:
        """Places for steps to come."""
        rows = n_outputs, n_places, d
        of_tilts, matrices = np.zeros((n_outputs, n_places, d * tilts)), np.zeros((*rows, d))
        return cls(*np.zeros((3, *rows)), of_tilts, matrices, *np.zeros((2, n_places)))

    def after(self, place: int, size: float, **released: np.ndarray) -> KeptSteps:
        """With a step at C = ``size`` that released this, each of shape (n_outputs, d) or (n_outputs, d, d)."""
        arrays = {name: value.copy() for name, value in vars(self).items()}
        arrays["counts"][place] += 1.0
        share = 1.0 / arrays["counts"][place]
        arrays["sizes"][place] += share * (size**2 - arrays["sizes"][place])
        for name, value in released.items():
            arrays[name][:, place] += share * (value - arrays[name][:, place])
        return KeptSteps(**arrays)

    def released(
        self, noise_std: Mapping[str, float], unit: float, sampling_rate: float, ratios: tuple[float, float]
    ) -> list[Released]:
        """What was released about each output; ``noise_std`` is that of one step in the blocks as they are summed."""
        used = self.counts > 0.0
        counts, size = self.counts[used], np.sqrt(self.sizes[used])
        factors = _factors(size, unit)
        stds = [noise_std[name] * factors[name] / np.sqrt(counts) for name in _BLOCKS]
        others = np.column_stack(stds), (1.0 / sampling_rate - 1.0) / counts, ratios
        arrays = (self.points, self.scores, self.informations, self.squares, self.tilts)
        return [Released(*(array[j, used] for array in arrays), *others) for j in range(len(self.points))]


@dataclass(frozen=True)
class Search:
    """Where a private fit looks next, and what it has released.

    Parameters
    ----------
    zooms : Zooms
    point : ndarray of shape (n_outputs, d)
        Coefficients of rows in the coordinates of the zooms, at which the next step takes scores.
    size, unit : float
        C, by which the statistics of the next step are divided, and the unit of residuals.
    kept : KeptSteps
    """

    zooms: Zooms
    point: np.ndarray
    size: float
    unit: float
    kept: KeptSteps

    @classmethod
    def begun(
        cls, zooms: Zooms, point: np.ndarray, size: float, unit: float, n_scores: int, tilts: bool = False
    ) -> Search:
        """Before the first of so many scores."""
        outputs, d = point.shape
        n_places = min(n_scores, _MOST_KEPT, max(_FEWEST_KEPT, _MOST_NUMBERS // (outputs * d * d)))
        return cls(zooms, point, size, unit, KeptSteps.none(outputs, n_places, d, tilts))

    @property
    def n_done(self) -> int:
        """Number of scores until now."""
        return int(self.kept.counts.sum())

    def adapts(self, n_scores: int) -> bool:
        """Whether it is time, of so many scores, to let C follow from what was released."""
        return self.n_done == before_adapted(n_scores)

    def after(self, average: Mapping[str, np.ndarray], n_scores: int) -> Search:
        """With what a step of ``n_scores`` has released, as it is summed."""
        outputs, n_places = len(self.point), len(self.kept.counts)
        totals = {
            name: factor * np.reshape(average[name], (outputs, *average[name].shape[outputs > 1 :]))
            for name, factor in _factors(self.size, self.unit).items()
            if name in average
        }
        kept = self.kept.after(
            self.n_done // -(-n_scores // n_places), self.size, points=self.point, scores=totals["linear"],
            informations=totals["precision"], squares=totals["squares"], tilts=totals.get("tilt", self.kept.tilts[:, 0]),
        )  # fmt: skip
        return replace(self, kept=kept)

    def released(self, noise_std: Mapping[str, float], plan: PrivacyPlan) -> list[Released]:
        """What was released about each output; ``noise_std`` is that of one step in the blocks as they are summed."""
        least, most = _RATIOS
        ratios = least if plan.max_weight is None else _LEAST_OF_WEIGHTS, max(most, plan.max_rows_per_group or 0)
        return self.kept.released(noise_std, self.unit, plan.sampling_rate, ratios)

    def towards(self, means: np.ndarray) -> Search:
        """With these coefficients for the next point, unless they are too far away."""
        moves = means - self.point
        longest = np.linalg.norm(moves, axis=1, keepdims=True)
        return replace(self, point=self.point + moves * np.minimum(1.0, _LONGEST / np.maximum(longest, 1e-300)))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays to save."""
        kept = {f"kept_{name}": value for name, value in vars(self.kept).items()}
        searched = {"size": self.size, "unit": self.unit, "point": self.point} | kept
        return self.zooms.to_arrays() | {f"search_{name}": np.asarray(value) for name, value in searched.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Search:
        """From the arrays of :meth:`to_arrays`; ValueError for others."""
        names = [name for name in arrays if name.startswith("search_")]
        of = {name.removeprefix("search_"): np.asarray(arrays[name], np.float64) for name in names}
        kept = KeptSteps(*(of[f"kept_{field.name}"] for field in fields(KeptSteps)))
        is_moderate = all((np.abs(value) < _TOO_LARGE).all() for value in of.values())  # nor NaN
        are_counts = (kept.counts >= 0.0).all() and (kept.counts == np.floor(kept.counts)).all()
        if not (
            is_moderate and are_counts and (kept.sizes >= 0.0).all() and min(of["size"], of["unit"]) > 1.0 / _TOO_LARGE
        ):
            raise ValueError("the posterior's kept steps are none that a fit makes")
        return cls(Zooms.from_arrays(arrays), of["point"], float(of["size"]), float(of["unit"]), kept)


def before_adapted(n_scores: int) -> int:
    """Number of scores, of so many, that are taken before C follows from what was released."""
    return max(n_scores // _ADAPTED, 1)


def _factors(size, unit: float) -> dict:
    """By which sums are multiplied, by block: see :func:`scores_at`."""
    squares = np.square(size * unit) / _of_squares(size)
    return {"linear": size * unit, "precision": size * unit**2, "squares": squares, "tilt": size * unit}


def _of_squares(size):
    """c: where C is large, squares would fill the clip norm."""
    return np.minimum(size, _MOST_OF_SQUARES)


def blocks_of_scores(
    outputs: tuple[int, ...], d: int, clip_norm: float, bends: bool, squares: float = SQUARES_SCALE,
    of_many: float = _INFORMATION_OF_MANY, tilts: bool = False,
) -> dict[str, Block]:  # fmt: skip
    """Blocks of a step that releases scores, of d coefficients of so many outputs.

    ``squares``: scale of squares over the clip norm; ``of_many``: of the information of many coefficients, times √d.
    """
    information = min(_INFORMATION, of_many / np.sqrt(d))
    blocks = {
        "linear": Block((*outputs, d)),
        "precision": Block((*outputs, d, d), symmetric=True, scale=information),
        "squares": Block((*outputs, d), scale=squares * clip_norm),
    }
    blocks |= {"tilt": Block((*outputs, d), scale=_TILT)} if tilts else {}
    return blocks | ({"bends": Block((*outputs, d, d), symmetric=True, scale=_BENDS)} if bends else {})


def phase_of_scores(
    n_scores: int, bends: bool, statistics: str = "expected_statistics", tilts: bool = False
) -> FitPhase:
    """The phase of these blocks: each total is released by itself and kept, but for bends, of which late ones, near the
    estimate, weigh more in their average."""
    of_bends = (lambda s: {"bends": 2.0 / (s + 1)}) if bends else (lambda s: {})
    kept = [*_BLOCKS, "tilt"] if tilts else _BLOCKS
    released = "noisy scores, information and squares of scores" + ", tilts" * tilts + ", bends" * bends
    return FitPhase(
        "scores", n_scores, blocks=[*kept, "bends"] if bends else kept, statistics=statistics,
        step_size=lambda s: dict.fromkeys(kept, 1.0) | of_bends(s), released=released,
    )  # fmt: skip


def fitting_size(
    plan: PrivacyPlan, zooms: Zooms, n_scores: int, numbers: np.ndarray, information: float, limits: tuple[float, float]
) -> float:
    """C between these limits, with which the noise of the averaged scores is a tenth of their variance by sampling.

    Where numbers have long tails, or noise hides whether, it is up to four tenths, less with many columns: rows far out are
    clipped, and where the model does not hold for them that moves the estimate more than noise does.

    Parameters
    ----------
    plan : PrivacyPlan
    zooms : Zooms
    n_scores : int
    numbers : ndarray of shape (n_features,)
        Which columns are no indicators, whose tails are known.
    information : float
        About the predictor of a row, in the unit of residuals.
    limits : (float, float)
    """
    if not (zooms.n_zooms and zooms.count):
        return limits[0]
    longest = np.max(zooms.longest_tails[: len(numbers)], where=numbers, initial=0.0)
    most = max(_RATIO, _OF_TAILS * min(1.0, _FEW_COLUMNS / len(numbers)))
    ratio = np.clip(_RATIO + _BY_TAILS * (longest - _NO_TAIL), _RATIO, most)
    noise = plan.noise_std() / plan.sampling_rate
    free = np.sqrt(ratio * zooms.count * n_scores * information / len(numbers)) / max(noise, 1e-300)
    return float(np.clip(free, *limits))


def scores_at(
    rows: np.ndarray, y: np.ndarray, psi: np.ndarray, likelihood, size: float, unit: float,
    labels: np.ndarray | None, clip_norm: float | None, as_csr: bool, bends: bool, tilts: np.ndarray | None = None,
    spread: tuple[float, float] | None = None,
) -> RegressionSums:  # fmt: skip
    """What a private step sums of moved rows: r x/(s C), I x xᵀ/(s² C), of a record's score the squares times c, and perhaps
    r x xᵀ/(s C) and h r x/(s C).

    Parameters
    ----------
    rows : ndarray of shape (n_records, d)
        From :meth:`Coordinates.rows`.
    y : ndarray of shape (n_records,) or (n_records, n_columns)
    psi : ndarray of shape (n_records, n_outputs)
        With the offset.
    likelihood : Likelihood
        With a method ``scores``.
    size, unit : float
        C, by which statistics are divided so that the clip norm stays a constant, and the unit s of residuals. Released.
    labels : ndarray of shape (n_labels,), optional
        Among which is one with the largest norm for every x: so clips do not look at labels. None: the record's own.
    clip_norm : float
        The plan's.
    as_csr : bool
        Whether sums go entry by entry: so roundings do not depend on other rows.
    bends, tilts, spread
        As in :class:`~vips.core.sums.regressions.RegressionSums`.
    """

    def parts(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, information = likelihood.scores(y, psi, size)
        return residual / (unit * size), information / (unit**2 * size)

    def of_labels() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for label in () if labels is None else labels:
            other = y.astype(np.float64)
            (other[:, 0] if y.ndim > 1 else other)[:] = label  # an exposure stays
            yield parts(other)

    factors = (Rows(*of_all) for of_all in zip(parts(y), *of_labels(), strict=True))
    return RegressionSums(
        Rows(sp.csr_array(rows) if as_csr else rows),
        *factors,
        bends=bends,
        tilts=tilts,
        spread=spread,
        clip_norm=clip_norm,
        unit=_of_squares(size),
    )
