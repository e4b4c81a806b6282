"""A fitted ``PrivateClassifier`` as a file of arrays and JSON, and back. What is read is checked: it may be forged."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vips.classification.columns import ColumnCells
from vips.classification.features import log_odds_of_tables
from vips.classification.tables import ClassTable, budget_of
from vips.persistence.archive import write_archive
from vips.persistence.fitted import contents, restored
from vips.persistence.settings import decode, encode
from vips.preprocessing._grids import DAYS, NUMBERS
from vips.privacy.fingerprint import as_bytes, fingerprint_of

__all__ = ["restored_classifier", "save_classifier", "tables_fingerprint"]

_COUNTS = "tables/"
_MOST_CELLS = max(NUMBERS.n_cells, DAYS.n_cells)


def save_classifier(classifier, path: str | os.PathLike) -> None:
    """Write a fitted classifier."""
    header, arrays = contents(classifier.model_)
    header = {
        "parameters": {name: encode(value) for name, value in classifier.get_params(deep=False).items()},
        "tables": _cells(classifier),
        "n_features_in": classifier.n_features_in_,
        "names_in": encode(list(getattr(classifier, "feature_names_in_", []))),
        "table_std": encode(classifier.table_std_),
        "model": header,
    }
    write_archive(path, "classifier", header, arrays | _counts(classifier))


def tables_fingerprint(classifier) -> str:
    """The fingerprint of counts, and of the cells that they are of."""
    return fingerprint_of(lambda: _counts(classifier) | {"cells": as_bytes(_cells(classifier))})


def _counts(classifier) -> dict[str, np.ndarray]:
    counts = {f"{_COUNTS}{i}": table.counts for i, table in enumerate(classifier.tables_.values())}
    return counts | {"class_counts": classifier.class_counts_}


def _cells(classifier) -> list:
    return [[encode(name), encode([*vars(table.cells).values()])] for name, table in classifier.tables_.items()]


def restored_classifier(kind: type, header: dict, arrays: dict[str, np.ndarray], known: Mapping[str, type]):
    """The classifier, of class ``kind``, of a file's header and arrays; ``known`` classes of models, by name."""
    classifier = kind(**{name: decode(value) for name, value in header["parameters"].items()})
    counts = {name: arrays.pop(name) for name in list(arrays) if name.startswith(_COUNTS) or name == "class_counts"}
    classifier.class_counts_ = counts.pop("class_counts")
    classifier.n_classes_, classifier.table_std_ = len(classifier.class_counts_), float(decode(header["table_std"]))
    classifier.tables_ = {
        decode(name): ClassTable(ColumnCells(*decode(cells)), counts[f"{_COUNTS}{i}"])
        for i, (name, cells) in enumerate(header["tables"])
    }
    for table in classifier.tables_.values():
        if table.cells.kind != "category" and table.cells.n_cells > _MOST_CELLS:
            raise ValueError("its tables have more cells than any column of numbers")
        if table.counts.shape != (classifier.n_classes_, table.cells.n_cells + 1):
            raise ValueError("its tables have other shapes than their cells")
    classifier.n_features_in_, names = int(header["n_features_in"]), decode(header["names_in"])
    if names:
        classifier.feature_names_in_ = np.array([str(name) for name in names], dtype=object)
    classifier.model_ = restored(header["model"], arrays, known)
    classifier.classes_ = classifier.model_.classes_
    if len(classifier.classes_) != classifier.n_classes_:
        raise ValueError("its tables and its regression have different numbers of classes")
    noisy = classifier.tables_, classifier.class_counts_, classifier.table_std_
    classifier.log_odds_ = log_odds_of_tables(*noisy)
    width = sum(len(columns) for columns in classifier.log_odds_.values())
    if width != classifier.model_.n_features_in_:
        raise ValueError("its tables and its regression have different numbers of features")
    _check_plans(classifier)
    _restate_fingerprint(classifier)
    return classifier


def _restate_fingerprint(classifier) -> None:
    """That of the tables in the file."""
    *tables, fit = classifier.privacy_.releases
    tables = (replace(release, sha256=tables_fingerprint(classifier)) for release in tables)
    classifier.model_.privacy_ = replace(classifier.privacy_, releases=(*tables, fit))


def _check_plans(classifier) -> None:
    """Raise ValueError unless tables and regression spent what the settings say."""
    releases = classifier.privacy_.releases
    learnt = {None: "category"} if releases[0].threshold_delta else {}
    budget = budget_of(classifier, dict.fromkeys(classifier.tables_) | learnt)
    if len(releases) != (1 if budget is None else 2):
        raise ValueError("its statement is not that of its settings")
    if budget is None:
        return
    tables, fit = releases
    budget.check_spent(tables, fit)
    has_this_norm = tables.plan.clip_norm == math.sqrt(len(classifier.tables_) + 1)
    if not (has_this_norm and math.isclose(tables.plan.noise_std(), classifier.table_std_)):
        raise ValueError("its noise is not that of its tables")
