"""A comparison as plain numbers and texts, ready for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vips.comparison.comparison import Comparison

__all__ = ["plain_values"]


def plain_values(comparison: Comparison) -> dict:
    """Rows, parameters and statements; numbers that do not exist, or are infinite, are None."""
    parameters = [
        _finite(dict(zip(columns, values, strict=True)))
        for columns in (movement.columns() for movement in comparison.movements)
        for values in zip(*(list(column) for column in columns.values()), strict=True)
    ]
    return {
        "model": comparison.model,
        "summary": comparison.summary,
        "private": comparison.private,
        "baseline": comparison.baseline,
        "clip_biases": list(comparison.clip_biases),
        "level": comparison.level,
        "rows": [_finite(asdict(row)) for row in comparison.rows],
        "parameters": parameters,
        "source_of_parameters": comparison.source,
        "privacy": [report.to_dict() for report in comparison.privacy],
        "notes": list(comparison.notes),
    }


def _finite(value):
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float):  # NumPy's, too
        return float(value) if math.isfinite(value) else None
    return value
