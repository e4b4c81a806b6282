"""Tables of declared columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import numpy as np
from sklearn.utils import Bunch

from vips._support.extras import imported
from vips.core.mechanism.random_state import RandomStateLike, as_generator

__all__ = ["make_table"]

_MISSING, _SHARE_MISSING = "(missing)", 0.1
_LEARNT: dict = {"number": (0.0, 1.0), "date": (date(2020, 1, 1), date(2021, 12, 31)), "category": ["A", "B", "C"]}


def make_table(
    columns: Mapping,
    n_records: int = 10_000,
    *,
    guess: Mapping | None = None,
    effects: Mapping | None = None,
    random_state: RandomStateLike = None,
) -> Bunch:
    """Draw a table from the declarations of its columns, to plan and rehearse with: no record of anybody is in it.

    Columns are independent of each other.

    Parameters
    ----------
    columns : mapping of str to declaration
        As :class:`vips.preprocessing.TableEncoder` takes them. "number" has bounds 0 and 1 here, "date" two years, and
        "category" three letters.
    n_records : int
    guess : mapping of str, optional
        What is public about a column: (mean, standard deviation) of numbers and dates (days), shares of categories. By default
        numbers are around the middle of their bounds, with a deviation of a sixth of the range, and categories are equally
        frequent.
    effects : mapping of str, optional
        On a linear predictor: of a number per unit, of a date per day; of categories, a mapping from some of them to effects.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Bunch
        ``data``, a data frame; ``predictor``, shape (n_records,), the sum of the effects, with mean 0.

    Raises
    ------
    ValueError
        If ``guess`` or ``effects`` name another column.

    Examples
    --------
    >>> import numpy as np
    >>> from vips.datasets import make_table
    >>> declared = {"age": (18, 100), "ward": ["A", "B"]}
    >>> table = make_table(declared, 5, guess={"age": (58, 17)}, effects={"age": 0.05, "ward": {"B": 1.0}}, random_state=0)
    >>> table.data.shape, table.predictor.shape
    ((5, 2), (5,))
    """
    pandas = imported("pandas", "make_table()")
    guess, effects = guess or {}, effects or {}
    for name, entries in (("guess", guess), ("effects", effects)):
        if unknown := sorted(map(str, set(entries) - set(columns))):
            raise ValueError(f"`{name}` names columns that are not declared: {', '.join(unknown)}.")
    rng, cells, predictor = as_generator(random_state), {}, np.zeros(n_records)
    for name, declared in columns.items():
        declared = _LEARNT[declared] if isinstance(declared, str) else declared
        draw = _categories if isinstance(declared, list) else _numbers
        cells[name], effect = draw(declared, guess.get(name), effects.get(name), n_records, rng)
        predictor += effect - (effect.mean() if n_records else 0.0)
    return Bunch(data=pandas.DataFrame(cells), predictor=predictor)


def _numbers(declared: tuple, guess, effect, n_records: int, rng: np.random.Generator) -> tuple[object, np.ndarray]:
    """Cells, and their effects."""
    low, high = declared[:2]
    is_date = not isinstance(low, int | float | np.number)
    ends = np.array([low, high], "datetime64[D]").astype(float) if is_date else np.array([low, high], float)
    mean, std = (ends.mean(), np.ptp(ends) / 6.0) if guess is None else guess
    if is_date and guess is not None:
        mean = float(np.datetime64(mean, "D").astype(np.int64))
    values = np.clip(mean + std * rng.standard_normal(n_records), *ends)
    values = np.rint(values) if is_date or all(isinstance(end, int) for end in (low, high)) else values
    missing = (rng.random(n_records) < _SHARE_MISSING) & (len(declared) == 3)
    linear = (effect or 0.0) * np.where(missing, mean, values)
    if is_date:
        return np.where(missing, np.datetime64("NaT"), values.astype("datetime64[D]")), linear
    return np.where(missing, np.nan, values), linear


def _categories(declared: list, guess, effects, n_records: int, rng: np.random.Generator) -> tuple[list, np.ndarray]:
    """Cells, and their effects."""
    shares = np.full(len(declared), 1.0) if guess is None else np.asarray(guess, float)
    codes = rng.choice(len(declared), n_records, p=shares / shares.sum())
    values = [None if category == _MISSING else category for category in declared]
    sizes = np.array([(effects or {}).get(category, 0.0) for category in declared])
    return [values[code] for code in codes], sizes[codes]
