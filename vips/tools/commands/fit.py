"""The commands ``fit`` and ``predict``."""

from __future__ import annotations

import argparse
import codecs
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from vips._support.extras import imported
from vips._support.printable import lines_of_table, printable
from vips.core.budget import PrivacyBudget
from vips.core.ledger.ledger import PrivacyLedger
from vips.core.records.groups import runs_of_rows
from vips.data._cell_values import as_numbers
from vips.data._columns import names_like
from vips.data._order import is_text_or_object
from vips.data._pieces import TableInPieces
from vips.report.report_fields import finite
from vips.tools.commands import files
from vips.tools.commands.outputs import check_outputs, checked_needs, write_table
from vips.tools.commands.parsers import STATED
from vips.tools.commands.reading import Reading, stated

__all__ = ["fit", "predict"]

_LINES = "rows of a CSV file with line breaks in a cell: every line is a record of its own"
_LOGGER = logging.getLogger("vips")


def fit(options: argparse.Namespace) -> None:
    """Fit a model, write what is to be written, and print what was learnt."""
    lists = [text for text in (options.catalogue, options.stop_words) if text and os.path.isfile(text)]
    check_outputs((options.save, options.report, options.checkpoint), (options.data, options.ledger, *lists))
    if options.report is not None:
        imported("jinja2", by="--report")
    ledger = None if options.ledger is None else PrivacyLedger.open(options.ledger, purpose=options.purpose)
    reading = Reading(**stated(options))
    _LOGGER.info("Reading %s", options.data)
    fitted = {"logistic": _logistic, "topics": _topics, "pathways": _pathways}[options.model]
    model, shown, needs = fitted(options, reading, ledger)
    if (options.model != "topics" or options.text is not None) and files.is_of_csv(options.data):
        last = model[-1] if hasattr(model, "steps_") else model  # of a pipeline
        last.privacy_ = replace(last.privacy_, also_not_covered=(_LINES,))
    if options.save is not None:  # before anything is printed: a reader may have gone, and the fit is paid for
        from vips.saving import save_for_shell

        save_for_shell(model, options.save, {"model": options.model, "reading": asdict(reading), **needs})
        _LOGGER.info("Written: %s", options.save)
    if options.report is not None:
        dataset = Path(options.data).name if ledger is None else ledger.dataset
        of_page = {"ledger": ledger, "dataset": dataset, "purpose": options.purpose, "model": model}
        model.privacy_.to_html(options.report, **of_page, **{name: getattr(options, name) for name in STATED})
        _LOGGER.info("Written: %s", options.report)
    is_table = hasattr(shown, "columns")
    if options.json:
        rows = finite(shown.reset_index().to_dict("records") if is_table else shown)
        print(json.dumps({"results": rows, "privacy": model.privacy_.to_dict()}))
        return
    print("\n".join(lines_of_table(shown) if is_table else map(_line_of_topic, shown)))
    print(model.privacy_)
    if ledger is None:
        print("No ledger was given: nothing adds this fit to earlier ones of the same people.")


def _line_of_topic(topic: dict) -> str:
    label = f" ({topic['label']})" if topic["label"] else ""
    return printable(f"topic {topic['topic']}{label}: {' '.join(topic['words'])}")


def _logistic(options: argparse.Namespace, reading: Reading, ledger: PrivacyLedger | None) -> tuple:
    from vips.models import BayesianLogisticRegression
    from vips.preprocessing import TableEncoder, make_private_pipeline

    _need(options, "target")
    table = files.table_of(options.data, reading)
    for name in ("unit", "target", "weight"):
        files.column_of(table.head, getattr(options, name), f"--{name}")
    if (options.weight is None) != (options.max_weight is None):
        raise ValueError("--weight names the column of weights, and --max-weight the largest of them: give both.")
    classes = _classes(options.classes, table.head[options.target])
    named_before = {options.unit, options.target, options.weight} - {None}
    others = table.head.drop(columns=named_before)
    declared = files.declarations_of(others, options.column, reading, list(table.columns))
    encoder = TableEncoder({name: files.meaning_of(name, what) for name, what in declared.items()})
    model = BayesianLogisticRegression(classes=classes)
    budget = PrivacyBudget(options.epsilon, options.delta)
    pipeline = make_private_pipeline(encoder, model, privacy=budget, max_weight=options.max_weight)
    tempfile.gettempdir()  # for features; raises where nothing can be written
    order, n_read, y, arguments = _labels(options, table, classes, reading)
    columns = TableInPieces(
        lambda: (files.as_declared(piece, declared, reading) for piece in table.pieces()), order, n_read
    )
    _LOGGER.info("Fitting %s", options.model)
    pipeline.fit(columns, y, ledger=ledger, checkpoint=options.checkpoint, **arguments)
    needs = {"columns": list(declared), "declared": list(declared.values()), "classes": classes}
    return pipeline, pipeline.summary(), needs


def _labels(options: argparse.Namespace, table: TableInPieces, classes: list[str], reading: Reading) -> tuple:
    """An order of rows in which those of a person stand together, or None; how many rows were read; in this order the target,
    as names of its classes, and ids and weights for ``fit``."""
    from pandas import Series

    persons, codes, weights, arguments = files.Persons(), [], [], {}
    for piece in table.pieces():
        codes.append(files.places_of(piece[options.target], classes, reading, by_number=True))
        if options.unit is not None:
            persons.add(piece[options.unit])
        if options.weight is not None:
            declared = files.as_declared(piece, {options.weight: "number"}, reading)
            weights.append(as_numbers(declared[options.weight], "number"))
    codes = np.nan_to_num(np.concatenate(codes), nan=-1.0).astype(np.int64)
    order, rows = None, slice(None)
    if options.unit is not None:
        numbers = persons.numbers()
        order, _ = runs_of_rows(numbers)
        rows = rows if order is None else order
        arguments["groups"] = Series(numbers[rows], name=options.unit)
    if options.weight is not None:
        arguments["sample_weight"] = Series(np.concatenate(weights)[rows], name=options.weight)
    names = np.array([*classes, None], object)[codes[rows]]
    return order, len(codes), Series(names, name=options.target), arguments


def _classes(text: str | None, target) -> list[str]:
    """The two values of the target, by their names."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if text is None and not (is_numeric_dtype(target.dtype) or is_bool_dtype(target.dtype)):
        raise ValueError("The target is a column of texts: name its two values, as in --classes no,yes.")
    classes = (text or "0,1").split(",")
    if len(set(classes)) != 2:
        raise ValueError("--classes names the two values of the target, as in --classes no,yes.")
    return classes


def _topics(options: argparse.Namespace, reading: Reading, ledger: PrivacyLedger | None) -> tuple:
    from vips.preprocessing import PrivateTopics

    stop_words = {} if options.stop_words is None else {"stop_words": _names(options.stop_words, reading)}
    texts, groups = files.read_texts(options.data, reading, options.text, options.unit)
    topics = PrivateTopics(privacy=PrivacyBudget(options.epsilon, options.delta), **stop_words)
    _LOGGER.info("Fitting %s", options.model)
    topics.fit(texts, ledger=ledger, checkpoint=options.checkpoint, groups=groups)
    evidence, top = topics.evidence(), topics.top_words(10)
    labels = [""] * len(top) if evidence is None else evidence.labels
    shown = [{"topic": k, "label": str(label), "words": list(top[k])} for k, label in enumerate(labels)]
    return topics, shown, {"text": options.text, "unit": options.unit}


def _pathways(options: argparse.Namespace, reading: Reading, ledger: PrivacyLedger | None) -> tuple:
    import pandas as pd

    from vips.models import CategoricalHMM

    _need(options, "unit", "event", "order", "catalogue")
    catalogue = _names(options.catalogue, reading)
    if len(catalogue) < 2 or len(set(catalogue)) < len(catalogue):
        raise ValueError(
            "--catalogue names at least two different events, as in --catalogue visit,operation,discharge."
        )
    needs = {name: getattr(options, name) for name in ("unit", "event", "order")} | {"catalogue": catalogue}
    table = files.events_of(options.data, needs, reading)
    pathways, _ = files.sequences_of(table, needs, reading)
    stated_as, cells = files.stated_of(table, options.column, reading).get(options.order), table[options.order]
    if is_text_or_object(cells.dtype) and not reading.date_formats and stated_as != "number":
        raise ValueError(
            f"--order {options.order!r}: the column holds texts, of which those in another form would come last. --date-format "
            f"says how its dates are written, as in --date-format %Y-%m-%d; for numbers write --column {options.order}=number."
        )
    budget = PrivacyBudget(options.epsilon, options.delta)
    persons = pd.Series(np.arange(len(pathways)), name=options.unit)  # one pathway each: the report says whose
    model = CategoricalHMM(options.states, n_symbols=len(catalogue), privacy=budget)
    _LOGGER.info("Fitting %s", options.model)
    model.fit(pathways, ledger=ledger, checkpoint=options.checkpoint, groups=persons)
    return model, model.summary(names=catalogue), needs


def _names(text: str, reading: Reading) -> list[str]:
    """Names that are separated by commas, or stand in the lines of a file."""
    if os.path.isfile(text):
        names = Path(text).read_bytes().removeprefix(codecs.BOM_UTF8).decode(reading.encoding).split("\n")
    else:
        names = text.split(",")
    return [name.strip() for name in names if name.strip()]


def _need(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(options, name) is None:
            raise ValueError(f"--model {options.model} needs --{name}.")


def predict(options: argparse.Namespace) -> None:
    """Write the predictions for a table or texts, a piece at a time."""
    from vips.saving import load_for_shell

    check_outputs([options.out], (options.model, options.data))
    model, needs = load_for_shell(options.model)
    needs, reading = checked_needs(needs, model, options.model)
    write_table(
        _PREDICTIONS[needs["model"]](model, options.data, needs, replace(reading, **stated(options))), options.out
    )
    print(f"written: {options.out}")


def _predicted_shares(model, path: str, needs: dict, reading: Reading) -> Iterator:
    if needs["text"] is not None:
        names = [name for name in (needs["text"], needs["unit"]) if name is not None]
        table = files.table_of(path, reading, names)
        files.column_of(table.head, needs["text"], "--text")
        for piece in filter(len, table.pieces()):
            yield _with_shares(model, files.texts_in(piece[needs["text"]]), piece.drop(columns=[needs["text"]]))
    elif Path(path).is_dir():
        texts, table = files.read_folder(Path(path), reading, "**/*")
        if not texts:
            raise ValueError(f"The folder {path!r} has no .txt file.")
        yield _with_shares(model, texts, table)
    else:
        raise ValueError("The model was fitted to a folder: write each text into a .txt file, and name their folder.")


def _with_shares(model, texts: list[str], table):
    return table.assign(**{f"topic {k}": share for k, share in enumerate(np.asarray(model.transform(texts)).T)})


def _predicted_states(model, path: str, needs: dict, reading: Reading) -> Iterator:
    table = files.events_of(path, needs, reading)
    pathways, rows = files.sequences_of(table, needs, reading)
    yield table.iloc[rows][[needs["unit"], needs["order"], needs["event"]]].assign(state=model.predict(pathways))


def _predicted_classes(model, path: str, needs: dict, reading: Reading) -> Iterator:
    table = files.table_of(path, reading)
    missing = [name for name in needs["columns"] if name not in table.columns]
    if missing:
        other = names_like(missing[0], table.columns)
        raise ValueError(f"The table has no column {missing[0]!r}, which the model was fitted with.{other}")
    declared, yes = dict(zip(needs["columns"], needs["declared"], strict=True)), needs["classes"][1]
    place = list(model.classes_).index(yes)
    for piece in filter(len, table.pieces()):
        probabilities = model.predict_proba(files.as_declared(piece, declared, reading))
        yield piece.assign(**{f"P({yes})": probabilities[:, place]})


_PREDICTIONS = {"logistic": _predicted_classes, "topics": _predicted_shares, "pathways": _predicted_states}
