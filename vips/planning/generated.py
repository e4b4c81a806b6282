"""Records to plan with, from what models and encoders declare: nobody's records."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.datasets import make_table
from vips.models._typical import persons
from vips.planning.trial import Like
from vips.preprocessing._private_pipeline import PrivatePipeline

__all__ = ["generated"]


def generated(
    model,
    n_records: int,
    n_features: int | None,
    rng: np.random.Generator,
    *,
    effects: Mapping | None = None,
    guess: Mapping | None = None,
) -> Like:
    """Records of a model or pipeline.

    Parameters
    ----------
    model : model or PrivatePipeline
    n_records : int
    n_features : int or None
        Of records that are rows of numbers.
    rng : Generator
    effects, guess : mapping, optional
        See :func:`vips.datasets.make_table`; of pipelines whose columns have names.

    Raises
    ------
    ValueError
        If too little is known about such records; with what to give.
    """
    try:
        if not isinstance(model, PrivatePipeline):
            if effects or guess:
                raise NotImplementedError("`effects` and `guess` are for pipelines, whose columns have names.")
            return Like(*model.typical_records(n_records, n_features, rng))
        encoder, last = model[0], model[-1]
        if not isinstance(getattr(encoder, "columns", None), Mapping):
            raise NotImplementedError(
                "The columns of this pipeline are not declared by name, or it takes texts: give records that resemble the "
                "private ones, like=, generated or public."
            )
        groups = persons(n_records, rng) if last.reads_persons else None
        n_rows = n_records if groups is None else len(groups)
        table = make_table(encoder.columns, n_rows, guess=guess, effects=effects, random_state=rng)
        if not last.needs_labels:
            return Like(table.data)
        predictor = table.predictor if effects else rng.standard_normal(n_rows)
        predictor = predictor + last.typical_effects(table.data, groups, rng)
        return Like(table.data, last.typical_labels(predictor, rng), groups)
    except NotImplementedError as missing:
        raise ValueError(str(missing)) from None
