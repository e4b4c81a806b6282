"""What to write instead of a column that holds no numbers. Every suggestion works for all values that the column can hold."""

from __future__ import annotations

__all__ = ["suggestion_for"]


def suggestion_for(dtype, values: str, in_frame: bool) -> str:
    """A sentence that says what to write.

    Parameters
    ----------
    dtype : dtype of NumPy or pandas
        Of no real number.
    values : str
        The expression for these values: "X", "X['day']", or "y" for labels.
    in_frame : bool
        Whether they are a column of a data frame, or a series.
    """
    kind = getattr(dtype, "kind", "O")
    if kind == "M" and in_frame:
        return (
            "Dates become numbers as days since a public date, e.g. "
            f"(pandas.to_datetime({values}, utc=True) - pandas.Timestamp('2000-01-01', tz='UTC')) / pandas.Timedelta(days=1)."
        )
    if kind == "M":
        return (
            "Dates become numbers as days since a public date, e.g. "
            f"({values} - numpy.datetime64('2000-01-01')) / numpy.timedelta64(1, 'D')."
        )
    if kind == "m":
        days = f"pandas.to_timedelta({values}) / pandas.Timedelta(days=1)"
        days = days if in_frame else f"{values} / numpy.timedelta64(1, 'D')"
        return f"Durations become numbers when they are divided by a unit, e.g. {days}."
    if values == "y":
        numbers = (
            f"pandas.to_numeric({values}, errors='coerce').astype(float)" if in_frame else f"{values}.astype(float)"
        )
        return f"Declare words as `classes` of a classifier. Convert numbers kept as text or objects, e.g. {numbers}."
    if in_frame:
        return (
            "Encode categories with vips.preprocessing.TableEncoder and a public list of them. Convert numbers kept as text "
            f"or objects, e.g. pandas.to_numeric({values}, errors='coerce').astype(float)."
        )
    return f"Convert it first, e.g. {values}.astype(float)."
