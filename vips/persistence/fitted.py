"""Fitted models as files: arrays and JSON, without pickle, so that a file from elsewhere cannot run code."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vips._support.fitted import fitted_attributes
from vips.core.contract import moves_averages
from vips.core.posteriors import posterior_arrays, restore_posterior, under
from vips.core.stream_plan import StreamPlan
from vips.core.sums import NoisyTotals
from vips.core.units import is_group
from vips.persistence.archive import write_archive
from vips.persistence.settings import decode, encode
from vips.persistence.steps import as_lists, check_totals, from_lists, restore_steps, step_arrays
from vips.report.report import PrivacyReport
from vips.report.report_fields import fingerprint
from vips.report.words import declared_of

__all__ = ["contents", "released_arrays", "restored", "save_model"]


_TOTALS, _STEPS = "noisy_totals", "steps"
_OF_THE_FILE = ("last_posterior_", "privacy_", "noisy_totals_")  # of members of their own, which are checked
_LONGEST_UNIT = 1_000  # characters
_OF_MODELS = ("fit", "regression", "stream")  # what a model's release can be
# Sums of at most _SMALL numbers are always accepted, others up to _MOST_TIMES the size of the posterior.
_SMALL, _MOST_TIMES = 2**18, 64


def save_model(model, path: str | os.PathLike, **besides: object) -> None:
    """Write a fitted model, and what the header holds besides; see :meth:`ConjugateExponentialModel.save`."""
    header, arrays = contents(model)
    write_archive(path, "model", header | besides, arrays)


def contents(model) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and arrays of a fitted model's file."""
    learnt = fitted_attributes(model)
    report, totals = (learnt.pop(name, None) for name in ("privacy_", "noisy_totals_"))
    del learnt["last_posterior_"]
    header = {
        "class": type(model).__name__,
        "parameters": {name: encode(value) for name, value in model.get_params(deep=False).items()},
        "learnt": {name: encode(value) for name, value in learnt.items()},
        "report": None if report is None else report.to_plain(),
        "noise_std": None if totals is None else as_lists(totals.noise_std),
    }
    return header, released_arrays(model)


def released_arrays(model) -> dict[str, np.ndarray]:
    """What a fit has released, by the names of the file: its posterior, and its noisy totals if they are kept."""
    totals = getattr(model, "noisy_totals_", None)
    arrays = posterior_arrays(model.last_posterior_)
    if totals is not None:
        arrays |= {f"{_TOTALS}/{name}": value for name, value in totals.average.items()}
        arrays |= {f"{_STEPS}/{name}": value for name, value in step_arrays(totals.steps).items()}
    return arrays


def restored(header: dict, arrays: dict[str, np.ndarray], known: Mapping[str, type]):
    """The model of a file's header and arrays, if its class is one of ``known``, by name."""
    if header["class"] not in known:
        raise ValueError(
            f"it holds a {header['class']}, not one of {', '.join(sorted(known))}. For a class of your own write "
            "vips.load(path, model_class=MyModel)"
        )
    parameters = {name: decode(value) for name, value in header["parameters"].items()}
    model = known[header["class"]](**parameters)
    for name, value in header["learnt"].items():
        if not name.endswith("_") or name.startswith("_") or name in _OF_THE_FILE or hasattr(type(model), name):
            raise ValueError(f"it sets {name!r}, which is not a fitted attribute")
        setattr(model, name, decode(value))
    model.check_arguments()
    totals, steps = under(arrays, _TOTALS), under(arrays, _STEPS)
    arrays = {name: value for name, value in arrays.items() if not name.startswith((f"{_TOTALS}/", f"{_STEPS}/"))}
    _check_size(model, arrays)
    model.check_features()
    report = None if header["report"] is None else PrivacyReport.from_json(header["report"])
    n_steps = 1 if report is None else report.plan.n_steps
    model.last_posterior_ = restore_posterior(model.shaped_after(n_steps), arrays)
    if header.get("noise_std") is not None:
        blocks = model.blocks()
        check_totals(totals, blocks, "noisy totals")
        shapes = {name: block.shape for name, block in blocks.items()}
        noise_std = from_lists(header["noise_std"], shapes, differ=moves_averages(model))
        model.noisy_totals_ = NoisyTotals(totals, noise_std)
        if steps:
            kept = restore_steps(model, n_steps, n_steps, steps)
            model.noisy_totals_ = replace(model.noisy_totals_, steps=tuple(kept))
    if report is not None:
        model.privacy_ = _restated(report, model)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model.check_restored()
    return model


def _restated(report: PrivacyReport, model) -> PrivacyReport:
    """The report, with the model's words in place of the file's where they follow from its settings, and the fingerprint
    of the file's arrays. An encoder's fingerprint is known where the encoder is read.

    The file's words remain for what settings do not say: the name of the unit of a fit with groups, what a stream declares,
    what came before the fit, and what the user has stated.
    """
    facts, fit = model.describe(), report.releases[-1]
    declared = declared_of(facts, fit.plan)
    if len(report.releases) > 1:  # what was learnt before the fit was not declared
        declared = tuple(fact for fact in declared if fact in fit.declared)
    if not isinstance(model.privacy, StreamPlan):
        fit = replace(fit, declared=declared)
    what = fit.what if fit.what in _OF_MODELS else "fit"
    sha256 = fingerprint(released_arrays(model))
    fit = replace(fit, what=what, released=facts["released"], mechanism="", sha256=sha256)
    before = tuple(replace(release, sha256="") for release in report.releases[:-1])
    unit = report.unit if is_group(report.unit) and len(report.unit) <= _LONGEST_UNIT else facts["unit"]
    return replace(report, releases=(*before, fit), unit=unit)


def _check_size(model, arrays: dict[str, np.ndarray]) -> None:
    """Raise ValueError if the settings imply a much larger model than the file's posterior; before such arrays are made."""
    entries = sum(math.prod(block.shape) for block in model.blocks().values())
    n_saved = sum(array.size for array in arrays.values())
    if entries > max(_SMALL, _MOST_TIMES * n_saved) or model.least_posterior_size() > n_saved:
        raise ValueError(f"its settings are those of a model with {entries:,} sums, its posterior is far smaller")
