"""The commands ``fit`` and ``predict``."""

from __future__ import annotations

import argparse
import codecs
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from vips._support.extras import imported
from vips._support.printable import lines_of_table, printable
from vips.core.budget import PrivacyBudget
from vips.core.ledger.ledger import PrivacyLedger
from vips.data._columns import names_like
from vips.data._order import is_text_or_object
from vips.tools.commands import files
from vips.tools.commands.outputs import check_outputs, checked_needs, write_table
from vips.tools.commands.reading import Reading, add_options, stated

__all__ = ["add_commands"]

_LINES = "rows of a CSV file with line breaks in a cell: every line is a record of its own"
_STATED = {
    "responsible": "who is responsible for the processing",
    "chosen_by": "who chose ε and δ",
    "reason": "why these",
}


def add_commands(commands) -> None:
    """Add the parsers of ``fit`` and ``predict``."""
    fit = commands.add_parser(
        "fit",
        help="a private fit to a table, a folder of texts, or a table of events",
        description="Fit a model privately. All that is learnt is paid for from ε and δ.",
    )
    add = fit.add_argument
    add("data", help="a .parquet, .csv or .csv.gz table, or a folder of .txt files")
    add("--model", required=True, choices=["logistic", "topics", "pathways"])
    add("--epsilon", type=float, required=True)
    add("--delta", type=float, required=True)
    add(
        "--unit", metavar="COLUMN",
        help="ids of persons: all rows of one are protected together; of a folder: 'folder', where each person has one",
    )  # fmt: skip
    add("--target", metavar="COLUMN", help="logistic: what is predicted")
    add(
        "--classes", metavar="A,B",
        help="logistic: the two values of the target, the second one counts as yes; 0,1 for a target of numbers",
    )  # fmt: skip
    add(
        "--column", action="append", default=[], metavar="NAME=WHAT",
        help="logistic: number, date, category, LOW:HIGH (of numbers or dates; LOW:HIGH,(missing) adds a feature of missing "
        "cells), A,B,C or drop; may be repeated. What is declared costs nothing. pathways: ORDER=number of texts",
    )  # fmt: skip
    add("--weight", metavar="COLUMN", help="logistic: how much each row counts, as the weights of a survey do")
    add("--max-weight", type=float, help="the largest weight, a public number; larger ones count as this one")
    add("--text", metavar="COLUMN", help="topics: texts, in a table")
    add("--event", metavar="COLUMN", help="pathways: what happened")
    add("--order", metavar="COLUMN", help="pathways: when")
    add("--catalogue", metavar="A,B,C", help="pathways: all possible events, or a file with one in each line")
    add("--states", type=int, default=5, help="pathways: number of states")
    add("--ledger", help="file of a budget, which `python -m vips ledger create` makes")
    add("--save", metavar="FILE", help="the fitted model")
    add("--report", metavar="FILE", help="the certificate, as HTML")
    add("--purpose", default="", help="what the fit is for: in the ledger, and on the certificate")
    for name, whose in _STATED.items():
        add(f"--{name.replace('_', '-')}", default="", metavar="TEXT", help=f"{whose}, on the certificate")
    add_options(fit)
    fit.set_defaults(run=_fit)

    predict = commands.add_parser(
        "predict",
        help="predictions of a saved model for another file",
        description="Predictions read the file that they are made for. They are not covered by the guarantee.",
    )
    add = predict.add_argument
    add("model", help="what `fit --save` wrote")
    add("data")
    add("--out", required=True, help="a .csv or .parquet table")
    add_options(predict)
    predict.set_defaults(run=_predict)


def _fit(options: argparse.Namespace) -> None:
    catalogue = options.catalogue if options.catalogue and os.path.isfile(options.catalogue) else None
    check_outputs((options.save, options.report), (options.data, options.ledger, catalogue))
    if options.report is not None:
        imported("jinja2", by="--report")
    ledger = None if options.ledger is None else PrivacyLedger.open(options.ledger, purpose=options.purpose)
    reading = Reading(**stated(options))
    fitted = {"logistic": _logistic, "topics": _topics, "pathways": _pathways}[options.model]
    model, lines, needs = fitted(options, reading, ledger)
    if Path(options.data).name.endswith((".csv", ".csv.gz")):
        last = model[-1] if hasattr(model, "steps_") else model  # of a pipeline
        last.privacy_ = replace(last.privacy_, also_not_covered=(_LINES,))
    if options.save is not None:  # before anything is printed: a reader may have gone, and the fit is paid for
        from vips.saving import save_for_shell

        save_for_shell(model, options.save, {"model": options.model, "reading": asdict(reading), **needs})
    if options.report is not None:
        dataset = Path(options.data).name if ledger is None else ledger.dataset
        of_page = {"ledger": ledger, "dataset": dataset, "purpose": options.purpose, "model": model}
        model.privacy_.to_html(options.report, **of_page, **{name: getattr(options, name) for name in _STATED})
    print("\n".join(lines))
    print(model.privacy_)
    if ledger is None:
        print("No ledger was given: nothing adds this fit to earlier ones of the same people.")


def _logistic(options: argparse.Namespace, reading: Reading, ledger: PrivacyLedger | None) -> tuple:
    from vips.models import BayesianLogisticRegression
    from vips.preprocessing import TableEncoder, make_private_pipeline

    _need(options, "target")
    table = files.read_table(options.data, reading)
    groups = files.column_of(table, options.unit, "--unit")
    target = files.column_of(table, options.target, "--target")
    weight = files.column_of(table, options.weight, "--weight")
    if (weight is None) != (options.max_weight is None):
        raise ValueError("--weight names the column of weights, and --max-weight the largest of them: give both.")
    classes = _classes(options.classes, target)
    named_before = (options.unit, options.target, options.weight)
    others = table.drop(columns=[name for name in named_before if name is not None])
    declared = files.declarations_of(others, options.column, reading, list(table.columns))
    columns = {name: files.meaning_of(name, what) for name, what in declared.items()}
    y = files.named(target, classes, reading, by_number=True).rename(options.target)
    encoder, model = TableEncoder(columns), BayesianLogisticRegression(classes=classes)
    budget = PrivacyBudget(options.epsilon, options.delta)
    pipeline = make_private_pipeline(encoder, model, privacy=budget, max_weight=options.max_weight)
    arguments = {} if groups is None else {"groups": groups}
    if weight is not None:
        weights = files.as_declared(table[[options.weight]], {options.weight: "number"}, reading)
        arguments["sample_weight"] = weights[options.weight]
    pipeline.fit(files.as_declared(others, declared, reading), y, ledger=ledger, **arguments)
    needs = {"columns": list(declared), "declared": list(declared.values()), "classes": classes}
    return pipeline, lines_of_table(pipeline.summary()), needs


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

    texts, groups, _ = files.read_texts(options.data, reading, options.text, options.unit)
    topics = PrivateTopics(privacy=PrivacyBudget(options.epsilon, options.delta))
    topics.fit(texts, ledger=ledger, groups=groups)
    evidence, top = topics.evidence(), topics.top_words(10)
    labels = [""] * len(top) if evidence is None else [f" ({label})" for label in evidence.labels]
    lines = [printable(f"topic {k}{label}: {' '.join(top[k])}") for k, label in enumerate(labels)]
    return topics, lines, {"text": options.text, "unit": options.unit}


def _pathways(options: argparse.Namespace, reading: Reading, ledger: PrivacyLedger | None) -> tuple:
    import pandas as pd

    from vips.models import CategoricalHMM

    _need(options, "unit", "event", "order", "catalogue")
    catalogue = _catalogue(options.catalogue, reading)
    needs = {name: getattr(options, name) for name in ("unit", "event", "order")} | {"catalogue": catalogue}
    table = files.read_table(options.data, reading)
    pathways, _ = _sequences(table, needs, reading)
    stated_as, cells = files.stated_of(table, options.column, reading).get(options.order), table[options.order]
    if is_text_or_object(cells.dtype) and not reading.date_formats and stated_as != "number":
        raise ValueError(
            f"--order {options.order!r}: the column holds texts, of which those in another form would come last. --date-format "
            f"says how its dates are written, as in --date-format %Y-%m-%d; for numbers write --column {options.order}=number."
        )
    budget = PrivacyBudget(options.epsilon, options.delta)
    persons = pd.Series(np.arange(len(pathways)), name=options.unit)  # one pathway each: the report says whose
    model = CategoricalHMM(options.states, n_symbols=len(catalogue), privacy=budget)
    model.fit(pathways, ledger=ledger, groups=persons)
    return model, lines_of_table(model.summary(names=catalogue)), needs


def _predict(options: argparse.Namespace) -> None:
    from vips.saving import load_for_shell

    check_outputs([options.out], (options.model, options.data))
    model, needs = load_for_shell(options.model)
    needs, reading = checked_needs(needs, model, options.model)
    predictions = _PREDICTIONS[needs["model"]](model, options.data, needs, replace(reading, **stated(options)))
    write_table(predictions, options.out)
    print(f"written: {options.out}")


def _predicted_shares(model, path: str, needs: dict, reading: Reading):
    if Path(path).is_dir():
        texts, table = files.read_folder(Path(path), reading, "**/*")
        if not texts:
            raise ValueError(f"The folder {path!r} has no .txt file.")
    elif needs["text"] is not None:
        texts, _, table = files.read_texts(path, reading, needs["text"])  # predictions need no ids
    else:
        raise ValueError("The model was fitted to a folder: write each text into a .txt file, and name their folder.")
    return table.assign(**{f"topic {k}": share for k, share in enumerate(np.asarray(model.transform(texts)).T)})


def _predicted_states(model, path: str, needs: dict, reading: Reading):
    table = files.read_table(path, reading)
    pathways, rows = _sequences(table, needs, reading)
    return table.iloc[rows][[needs["unit"], needs["order"], needs["event"]]].assign(state=model.predict(pathways))


def _predicted_classes(model, path: str, needs: dict, reading: Reading):
    table = files.read_table(path, reading)
    missing = [name for name in needs["columns"] if name not in table.columns]
    if missing:
        other = names_like(missing[0], table.columns)
        raise ValueError(f"The table has no column {missing[0]!r}, which the model was fitted with.{other}")
    declared = dict(zip(needs["columns"], needs["declared"], strict=True))
    yes = needs["classes"][1]
    probabilities = model.predict_proba(files.as_declared(table, declared, reading))[:, list(model.classes_).index(yes)]
    return table.assign(**{f"P({yes})": probabilities})


_PREDICTIONS = {"logistic": _predicted_classes, "topics": _predicted_shares, "pathways": _predicted_states}


def _sequences(table, needs: dict, reading: Reading) -> tuple:
    """Pathways, and the rows of the table in their order."""
    import pandas as pd

    from vips.data._sequences import Sequences

    names = ("unit", "event", "order")
    unit, event, order = (files.column_of(table, needs[name], f"--{name}") for name in names)
    if len({needs[name] for name in names}) < 3:
        raise ValueError("--unit, --event and --order name three different columns.")
    rows = files.in_order(order, reading)
    codes = files.places_of(event, needs["catalogue"], reading)
    # names of our own, whatever those of the table are
    coded = pd.DataFrame({"unit": unit.array, "code": codes, "row": np.arange(len(table))}).iloc[rows]
    both = Sequences.from_frame(coded, by="unit", columns=["code", "row"])
    return Sequences(both.values[:, 0], both.offsets), both.values[:, 1].astype(np.int64)


def _catalogue(text: str, reading: Reading) -> list[str]:
    if os.path.isfile(text):
        names = Path(text).read_bytes().removeprefix(codecs.BOM_UTF8).decode(reading.encoding).split("\n")
    else:
        names = text.split(",")
    names = [name.strip() for name in names if name.strip()]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(
            "--catalogue names at least two different events, as in --catalogue visit,operation,discharge."
        )
    return names


def _need(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(options, name) is None:
            raise ValueError(f"--model {options.model} needs --{name}.")
