"""How a model describes itself to comparisons and reports: parts of its posterior, names, scores, signal.

Every method has a default, so that any model can be compared. Only held-out scores need code in the class.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vips._support.validation import levels_to_user
from vips.core.units import is_group
from vips.exceptions import PrivacyWarning
from vips.expfam import Draws, ScaledDirichlet
from vips.expfam.divergences import BY_MOMENTS, FAMILIES, Family
from vips.report.only_noise import blocks_of_noise
from vips.report.unread import Seen

__all__ = [
    "STANDS_OUT",
    "FeatureTotals",
    "Part",
    "Score",
    "SelfDescription",
    "average",
    "divided",
    "in_column",
    "in_table",
    "indexed",
    "last_of",
    "telling_blocks",
    "warn_of_no_intervals",
]

# Standard deviations of noise above which a count is taken for one of records; missing values then get an indicator, say.
STANDS_OUT = 3.0


@dataclass(frozen=True)
class Part:
    """A block of a posterior.

    Attributes
    ----------
    name : str
    distribution : one of ``FAMILIES`` or ``BY_MOMENTS`` of ``vips.expfam.divergences``
    label : callable
        Maps an index into the array of means to the name of that parameter. A function of a module or a ``partial`` of one:
        closures cannot be pickled.
    columns : list of str
        Words or names of features.
    are_parameters : bool
        False for scales of the prior, which are compared but not listed among the parameters that moved most.
    """

    name: str
    distribution: Family | Draws | ScaledDirichlet
    label: Callable[[tuple[int, ...]], str]
    columns: list[str]
    are_parameters: bool = True


@dataclass(frozen=True)
class Score:
    """A score of a set of records, which can be bootstrapped.

    Attributes
    ----------
    name : str
    of_counts : callable
        Maps how often each record is drawn, shape (n_resamples, n_records), to the score of each resample.
    """

    name: str
    of_counts: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class FeatureTotals:
    """What a fit has released about its columns.

    Attributes
    ----------
    squares : ndarray of shape (n_features,)
        Sums of squares over the records; of indicators, how many records have them, in a unit that they share.
    noise_std : ndarray of shape (n_features,)
        Of the noise in each.
    means : ndarray of shape (n_features,)
        Averages over the records; 0 where noise hides them.
    size, size_std : float
        How many records there are, in the unit of the sums of squares, and the noise in it; NaN if it is not known.
    """

    squares: np.ndarray
    noise_std: np.ndarray
    means: np.ndarray
    size: float = math.nan
    size_std: float = math.nan

    @property
    def stand_out(self) -> np.ndarray:
        """Whether the records of a column can be told from noise."""
        return self.squares > STANDS_OUT * self.noise_std


class SelfDescription:
    """The part of a model's contract that fits do not need.

    Attributes
    ----------
    unit : str
        What one record is, in words: the unit that is protected.
    needs_labels : bool
        Whether the model predicts a y.
    settings_of_meaning : tuple of str
        Arguments that decide what the parameters mean: two fits must agree in them to be compared.
    """

    unit = "one record"
    needs_labels = False
    settings_of_meaning: tuple[str, ...] = ("n_components",)
    # of a model behind an encoder
    names_of_columns: Sequence[str] | None = None
    units_of_columns: tuple | None = None

    def column_names(self) -> list[str]:
        """Words or feature names, or x0, x1, … where there are none."""
        names = getattr(self, "feature_names_in_", self.names_of_columns)
        return [f"x{i}" for i in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def posterior_parts(self, posterior) -> list[Part]:
        """The distributions of a posterior; by default a single one, "parameters", or those of a dict.

        Raises
        ------
        TypeError
            For a posterior whose distributions are not known.
        """
        parts = posterior if isinstance(posterior, Mapping) else {"parameters": posterior}
        if not (parts and all(isinstance(part, (*FAMILIES, *BY_MOMENTS)) for part in parts.values())):
            raise TypeError(
                f"The posterior of {type(self).__name__} is a {type(posterior).__name__}, whose distributions are not known. "
                "Write posterior_parts(self, posterior) in the class, which gives a list of vips.Part; or compare them one by "
                "one: from vips.expfam.divergences import kl, wasserstein, total_variation_bound."
            )
        columns, is_dict = self.column_names(), isinstance(posterior, Mapping)
        labels = {
            name: partial(indexed, name) if part.mean.shape != (len(columns),)
            else partial(in_column, name, columns) if is_dict else partial(last_of, columns)
            for name, part in parts.items()
        }  # fmt: skip
        return [Part(name, part, labels[name], columns) for name, part in parts.items()]

    def components(self, posterior) -> tuple[np.ndarray, str] | None:
        """One row per latent component, shape (n_components, n_columns), and the distance by which two fits are matched:
        "hellinger" or "euclidean". None if there are no components, or their order has a meaning."""
        return None

    def in_order(self, posterior, order: np.ndarray) -> Any:
        """A posterior with its latent components in another order."""
        raise NotImplementedError(f"{type(self).__name__} has no latent components.")

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, ...]:
        """Records, and labels or None, such as constructor arguments declare them, from a plain guess of the parameters; and
        ids of persons, if the model reads persons.

        :func:`vips.plan_for` and :func:`vips.rehearse` fit them. Never a function of records.

        Parameters
        ----------
        n_records : int
        n_features : int or None
            Number of columns, where the arguments do not say it.
        rng : Generator

        Raises
        ------
        NotImplementedError
            If too little is known about such records; with what to give.
        """
        raise NotImplementedError(
            f"What records of a {type(self).__name__} look like is not known: give records that resemble the private ones, "
            "like=, generated or public."
        )

    def as_numbers(self, X) -> Any:
        """X as a table of numbers, as a data source of such records holds them: what an audit changes, entry by entry."""
        return X

    def typical_effects(self, X, persons: np.ndarray, rng: np.random.Generator) -> np.ndarray | float:
        """What a typical person adds to the linear predictor of each of its rows; ``persons`` are numbers from 0 on."""
        return 0.0

    def typical_labels(self, predictor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Labels at a linear predictor, of a model that takes some."""
        raise NotImplementedError(f"What labels of a {type(self).__name__} look like is not known: give like=(X, y).")

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Scores of records that were not fitted; none by default."""
        return []

    def predictions(self, X) -> np.ndarray | None:
        """Predictions for each record, shape (n_records, ...): probabilities, expected values, or log likelihoods."""
        return None

    def feature_totals(self) -> FeatureTotals | None:
        """What the fit has released about the columns, by which a pipeline averages over a cell that is not known. None by
        default."""
        return None

    def findings(self) -> dict[str, float]:
        """Numbers about the fit that a comparison shows, by name. Computed from released values only."""
        return {}

    def counts_read(self) -> Sequence[Seen]:
        """Noisy counts of what was read of each column, by which a fit warns of what it could not read. None by default."""
        return ()

    def signal(self) -> dict[str, float]:
        """Share of signal in each block that a private fit released: 1 - (mean square of the noise) / (that of the block).

        0 where nothing stands out from the noise (``vips/report/only_noise.py``), 1 without noise. Computed from released
        values only.
        """
        if not hasattr(self, "noisy_totals_"):
            return {}
        shares, blocks, totals = {}, self.blocks(), self.noisy_totals_
        telling = telling_blocks(self)
        hidden = blocks_of_noise(telling, totals.average, totals.noise_std)
        if len(hidden) == len(telling):
            hidden = tuple(blocks)
        for name, block in blocks.items():
            value, std = totals.average[name], totals.noise_std[name]
            noise = block.noise_var(std)
            size = float(np.mean(np.square(value)))
            is_hidden = name in hidden or not size > 0.0
            shares[name] = 0.0 if is_hidden else max(0.0, 1.0 - float(np.mean(noise)) / size)
        return shares

    def clip_biases(self) -> bool:
        """Whether clipping may have biased the parameters of this fit: its clip norm is below the largest norm of a record.

        It depends on public numbers only. A model whose clip keeps estimates unbiased overrides this.
        """
        plan, n_rows = self.privacy_.plan, 1
        if is_group(self.privacy_.unit):
            n_rows = plan.max_rows_per_group or np.inf
        return plan.clip_norm < n_rows * self.max_record_norm() * (1.0 - 1e-9)


def telling_blocks(model) -> dict:
    """Blocks that tell whether a fit released nothing but noise, because the deviations of their noise are exact."""
    names = model.exact_noise
    return {name: block for name, block in model.blocks().items() if names is None or name in names}


def warn_of_no_intervals(model) -> None:
    """Say why a summary has no limits, if it has none."""
    if reason := model.why_no_intervals():
        warnings.warn(f"No interval knows the noise. {reason}", PrivacyWarning, stacklevel=levels_to_user())


def last_of(names: list[str], index: tuple[int, ...]) -> str:
    return names[index[-1]]


def in_column(name: str, columns: list[str], index: tuple[int, ...]) -> str:
    return f"{name}: {columns[index[-1]]}"


def in_table(rows: list[str], columns: list[str], index: tuple[int, ...]) -> str:
    return f"{rows[index[0]]}: {columns[index[1]]}"


def indexed(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]"


def average(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    return counts @ values / counts.sum(axis=1)


def divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, NaN where b is 0."""
    return np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 0.0)
