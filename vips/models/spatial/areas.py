"""Declared areas: their names, who borders on whom, and the correlations of a Gaussian field over them. All of it is public."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from vips.core.exact.blas import cholesky, inverse_from_factor
from vips.core.records.groups import canonical_id, ids_and_numbers
from vips.models.spatial.fields import conditional

__all__ = ["Areas"]

# More areas than this make a posterior of several gigabytes.
_MOST_AREAS = 5_000
# Neighbours of an area that has coordinates alone.
_N_NEAREST = 6
_FARTHEST = 1e100  # coordinate: distances are finite
_LARGEST_CODE = 2**53
# Share of the field with this smoothness in the correlations by whose root counts are summed; the rest is of independent areas.
_SHARE, _SMOOTHNESS = 0.5, 0.9


@dataclass(frozen=True)
class Areas:
    """Areas in the order of their declaration."""

    names: tuple
    places: dict[bytes, int]  # of each name, by its canonical bytes
    codes: np.ndarray  # how a number stands for each area: the names where all are whole numbers, else the places
    borders: np.ndarray  # shape (n_areas, n_areas): 1 where two areas are neighbours

    @cached_property
    def mixing(self) -> np.ndarray:
        """M, lower triangular, with rows of norm 1: what counts are summed by.

        A sum by area would spend as much noise on each area as on the whole map. With M Mᵀ = (I + C)/2 for a field of middling
        smoothness, averages of neighbours get less noise, and differences between neighbours at most √2 times as much.
        """
        return cholesky((1.0 - _SHARE) * np.eye(len(self.names)) + _SHARE * self.correlation(_SMOOTHNESS))

    @classmethod
    def of(cls, declared, coordinates=None) -> Areas:
        """Read a declaration; raises TypeError or ValueError, in words, for one that cannot work."""
        if isinstance(declared, str | bytes) or not isinstance(declared, Mapping | Sequence | np.ndarray):
            raise TypeError(
                f"`areas` must be names, or a mapping of names to neighbours, got {type(declared).__name__}."
            )
        if getattr(declared, "ndim", 1) > 1:
            raise ValueError(
                "`areas` is a matrix, and must be a mapping of names to neighbours: "
                "{i: np.flatnonzero(row).tolist() for i, row in enumerate(matrix)} is that of its rows."
            )
        names = tuple(declared)
        if not 2 <= len(names) <= _MOST_AREAS:
            raise ValueError(
                f"`areas` must be 2 to {_MOST_AREAS:,} areas, got {len(names):,}: the names of all, or a mapping of each to "
                'its neighbours, {"north": ["east"], "east": ["north"]}. Areas learnt from records would reveal where few live.'
            )
        keys = [canonical_id(name) if isinstance(name, str | Real) else None for name in names]
        if None in keys or len(set(keys)) < len(keys):
            raise ValueError("`areas` must have different names: whole numbers or strings, of which 7 and '7' are one.")
        places = {key: place for place, key in enumerate(keys)}
        are_whole = all(key.isdigit() and int(key) < _LARGEST_CODE and str(int(key)).encode() == key for key in keys)
        codes = np.array([int(key) for key in keys] if are_whole else range(len(keys)), dtype=np.float64)
        if isinstance(declared, Mapping):
            borders = _borders(declared, places)
        else:
            borders = np.zeros((len(names), len(names))) if coordinates is None else _nearest(coordinates, len(names))
        return cls(names, places, codes, borders)

    def codes_of(self, column) -> np.ndarray:
        """Codes of a column of ids of any type; NaN for what is no declared area. A value's code depends on it alone."""
        ids, numbers = ids_and_numbers(column, len(column))
        codes = [self.codes[self.places[key]] if key in self.places else np.nan for key in ids]
        return np.array([*codes, np.nan])[numbers]

    def places_of(self, codes: np.ndarray) -> np.ndarray:
        """Place of each code; -1 for what is none."""
        order = np.argsort(self.codes)
        place = order[np.minimum(np.searchsorted(self.codes[order], codes), len(order) - 1)]
        return np.where(self.codes[place] == codes, place, -1)

    def correlation(self, smoothness: float) -> np.ndarray:
        """Correlation of a conditional autoregressive field, C ∝ (D - ρW)⁻¹, scaled to variances of 1."""
        cov = inverse_from_factor(cholesky(conditional(sp.csr_array(self.borders), smoothness).toarray()))
        std = np.sqrt(np.diagonal(cov))
        return cov / np.outer(std, std)


def _borders(declared: Mapping, places: Mapping[bytes, int]) -> np.ndarray:
    borders = np.zeros((len(places), len(places)))
    for place, (name, neighbours) in enumerate(declared.items()):
        if not isinstance(neighbours, Iterable):
            raise TypeError(f"`areas` must name the neighbours of {name!r} in a list, got {type(neighbours).__name__}.")
        for neighbour in neighbours:
            other = places.get(canonical_id(neighbour))
            if other is None or other == place:
                raise ValueError(f"{neighbour!r}, a neighbour of {name!r}, is no other one of the declared `areas`.")
            borders[place, other] = 1.0
    if (borders != borders.T).any():
        first, second = (list(declared)[place] for place in np.argwhere(borders > borders.T)[0])
        raise ValueError(f"{second!r} is a neighbour of {first!r}, but not the other way round in `areas`.")
    return borders


def _nearest(coordinates, n_areas: int) -> np.ndarray:
    """Neighbours are the nearest areas, and those to which an area is one of the nearest."""
    words = f"`coordinates` must be an array of numbers up to {_FARTHEST:g}, one row for each of the {n_areas} areas."
    if not isinstance(coordinates, Sequence | np.ndarray):  # what files hold
        raise TypeError(f"{words} Got {type(coordinates).__name__}.")
    try:
        coordinates = np.asarray(coordinates, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(words) from None
    are_finite = coordinates.size and np.abs(coordinates).max() <= _FARTHEST
    if coordinates.ndim != 2 or len(coordinates) != n_areas or not are_finite:
        raise ValueError(words)
    near = cKDTree(coordinates).query(coordinates, min(_N_NEAREST + 1, n_areas))[1]
    borders = np.zeros((n_areas, n_areas))
    borders[np.arange(n_areas)[:, None], near] = 1.0
    np.fill_diagonal(borders, 0.0)
    return np.maximum(borders, borders.T)
