"""The commands ``fit`` and ``predict``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from vips._commands.files import (
    as_columns,
    as_labels,
    as_numbers,
    column_of,
    read_features,
    read_table,
    read_texts,
)
from vips._commands.needs import checked_needs
from vips._commands.outputs import check_outputs, write_table
from vips._extras import imported
from vips._printable import lines_of_table, printable
from vips.privacy import PrivacyBudget
from vips.privacy.ledger.ledger import PrivacyLedger

__all__ = ["add_commands"]


def add_commands(commands) -> None:
    """Add the parsers of ``fit`` and ``predict``."""
    fit = commands.add_parser(
        "fit",
        help="a private fit to a table, a folder of texts, or a table of events",
        description="Fit a model privately. All that is learnt is paid for from ε and δ.",
    )
    fit.add_argument("data", help="a .parquet, .csv or .csv.gz table, or a folder of .txt files")
    fit.add_argument("--model", required=True, choices=["logistic", "topics", "pathways"])
    fit.add_argument("--epsilon", type=float, required=True)
    fit.add_argument("--delta", type=float, required=True)
    fit.add_argument(
        "--unit", metavar="COLUMN",
        help="ids of persons: all rows of one are protected together; of a folder: 'folder', where each person has one",
    )  # fmt: skip
    fit.add_argument("--target", metavar="COLUMN", help="logistic: what is predicted")
    fit.add_argument(
        "--classes", metavar="A,B",
        help="logistic: the two values of the target, the second one counts as yes; 0,1 for a target of numbers",
    )  # fmt: skip
    fit.add_argument(
        "--column", action="append", default=[], metavar="NAME=WHAT",
        help="logistic: number, date, category, LOW:HIGH, A,B,C or drop; may be repeated. What is declared costs nothing",
    )  # fmt: skip
    fit.add_argument("--text", metavar="COLUMN", help="topics: texts, in a table")
    fit.add_argument("--event", metavar="COLUMN", help="pathways: what happened")
    fit.add_argument("--order", metavar="COLUMN", help="pathways: when")
    fit.add_argument(
        "--catalogue", metavar="A,B,C", help="pathways: all possible events, or a file with one in each line"
    )
    fit.add_argument("--states", type=int, default=5, help="pathways: number of states")
    fit.add_argument("--ledger", help="file of a budget, which `python -m vips ledger create` makes")
    fit.add_argument("--save", metavar="FILE", help="the fitted model")
    fit.add_argument("--report", metavar="FILE", help="the certificate, as HTML")
    fit.add_argument("--purpose", default="", help="what the fit is for: in the ledger, and on the certificate")
    fit.set_defaults(run=_fit)

    predict = commands.add_parser(
        "predict",
        help="predictions of a saved model for another file",
        description="Predictions read the file that they are made for. They are not covered by the guarantee.",
    )
    predict.add_argument("model", help="what `fit --save` wrote")
    predict.add_argument("data")
    predict.add_argument("--out", required=True, help="a .csv or .parquet table")
    predict.set_defaults(run=_predict)


def _fit(options: argparse.Namespace) -> None:
    catalogue = options.catalogue if options.catalogue and os.path.isfile(options.catalogue) else None
    check_outputs((options.save, options.report), (options.data, options.ledger, catalogue))
    if options.report is not None:
        imported("jinja2", by="--report")
    ledger = None if options.ledger is None else PrivacyLedger.open(options.ledger, purpose=options.purpose)
    model, lines, needs = {"logistic": _logistic, "topics": _topics, "pathways": _pathways}[options.model](
        options, ledger
    )
    if options.save is not None:  # before anything is printed: a reader may have gone, and the fit is paid for
        from vips.saving import save_for_shell

        save_for_shell(model, options.save, needs)
    if options.report is not None:
        model.privacy_.to_html(
            options.report,
            ledger=ledger,
            dataset=Path(options.data).name,
            purpose=options.purpose,
            model=options.model,
        )
    print("\n".join(lines))
    print(model.privacy_)
    if ledger is None:
        print("No ledger was given: nothing adds this fit to earlier ones of the same people.")


def _logistic(options: argparse.Namespace, ledger: PrivacyLedger | None) -> tuple:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    from vips.models import BayesianLogisticRegression
    from vips.preprocessing import TableEncoder, make_private_pipeline

    _need(options, "target")
    frame = read_features(options.data, options.column, (options.unit, options.target))
    groups = column_of(frame, options.unit, "--unit")
    target = column_of(frame, options.target, "--target")
    if groups is not None:
        frame = frame.drop(columns=[options.unit])
    frame = frame.drop(columns=[options.target])
    if options.classes is None and not (is_numeric_dtype(target.dtype) or is_bool_dtype(target.dtype)):
        raise ValueError("The target is a column of texts: name its two values, as in --classes no,yes.")
    classes = (options.classes or "0,1").split(",")
    if len(set(classes)) != 2:
        raise ValueError("--classes names the two values of the target, as in --classes no,yes.")
    in_order = classes if classes == sorted(classes) else (0.0, 1.0)  # models sort labels
    labels = dict(zip(classes, in_order, strict=True))
    columns = as_columns(frame, options.column)
    encoder, model = TableEncoder(columns), BayesianLogisticRegression(classes=list(labels.values()))
    pipeline = make_private_pipeline(encoder, model, privacy=PrivacyBudget(options.epsilon, options.delta))
    arguments = {} if groups is None else {"groups": groups}
    pipeline.fit(frame[list(columns)], as_labels(target, labels), ledger=ledger, **arguments)
    needs = {"model": "logistic", "columns": list(columns), "classes": classes, "declared": options.column}
    return pipeline, lines_of_table(pipeline.summary()), needs


def _topics(options: argparse.Namespace, ledger: PrivacyLedger | None) -> tuple:
    from vips.preprocessing import PrivateTopics

    texts, groups, _ = read_texts(options.data, options.text, options.unit)
    topics = PrivateTopics(privacy=PrivacyBudget(options.epsilon, options.delta))
    topics.fit(texts, ledger=ledger, groups=groups)
    lines = [printable(f"topic {k}: {' '.join(words)}") for k, words in enumerate(topics.top_words(10))]
    return topics, lines, {"model": "topics", "text": options.text, "unit": options.unit}


def _pathways(options: argparse.Namespace, ledger: PrivacyLedger | None) -> tuple:
    import pandas as pd

    from vips.models import CategoricalHMM

    _need(options, "unit", "event", "order", "catalogue")
    catalogue = _catalogue(options.catalogue)
    names = options.unit, options.event, options.order
    pathways, _ = _sequences(read_table(options.data, names), *names, catalogue)
    budget = PrivacyBudget(options.epsilon, options.delta)
    persons = pd.Series(np.arange(len(pathways)), name=options.unit)  # one pathway each: the report says whose
    model = CategoricalHMM(options.states, n_symbols=len(catalogue), privacy=budget)
    model.fit(pathways, ledger=ledger, groups=persons)
    needs = {name: getattr(options, name) for name in ("model", "unit", "event", "order")} | {"catalogue": catalogue}
    return model, lines_of_table(model.summary(names=catalogue)), needs


def _predict(options: argparse.Namespace) -> None:
    from vips.saving import load_for_shell

    check_outputs([options.out], (options.model, options.data))
    model, needs = load_for_shell(options.model)
    needs = checked_needs(needs, model, options.model)
    if needs["model"] == "topics":
        unit = needs["unit"] if Path(options.data).is_dir() else None  # predictions need no ids
        texts, _, predictions = read_texts(options.data, needs["text"], unit)
        shares = np.asarray(model.transform(texts))
        predictions = predictions.assign(**{f"topic {k}": share for k, share in enumerate(shares.T)})
    elif needs["model"] == "pathways":
        names = needs["unit"], needs["event"], needs["order"]
        frame = read_table(options.data, names)
        pathways, rows = _sequences(frame, *names, needs["catalogue"])
        predictions = frame.iloc[rows][[needs["unit"], needs["order"], needs["event"]]].copy()
        predictions["state"] = model.predict(pathways)
    else:
        frame = read_features(options.data, needs["declared"])
        missing = [name for name in needs["columns"] if name not in frame.columns]
        if missing:
            raise ValueError(f"The table has no column {missing[0]!r}, which the model was fitted with.")
        predictions = frame.copy()
        predictions[f"P({needs['classes'][1]})"] = model.predict_proba(frame[needs["columns"]])[:, 1]
    write_table(predictions, options.out)
    print(f"written: {options.out}")


def _sequences(frame, unit: str, event: str, order: str, catalogue: list[str]) -> tuple:
    """Pathways, and the rows of the table in their order."""
    import pandas as pd

    from vips.data import Sequences

    for option, name in (("--unit", unit), ("--event", event), ("--order", order)):
        column_of(frame, name, option)
    if len({unit, event, order}) < 3:
        raise ValueError("--unit, --event and --order name three different columns.")
    codes = frame[event].astype(str).map({name: float(i) for i, name in enumerate(catalogue)}).to_numpy(np.float64)
    rows = _in_order(frame[order])
    # names of our own, whatever those of the table are
    coded = pd.DataFrame({"unit": frame[unit].array, "code": codes, "row": np.arange(len(frame))}).iloc[rows]
    both = Sequences.from_frame(coded, by="unit", columns=["code", "row"])
    return Sequences(both.values[:, 0], both.offsets), both.values[:, 1].astype(np.int64)


def _in_order(when) -> np.ndarray:
    """Rows by number, date or text. Texts that are numbers are in the order of these, before all others."""
    from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

    from vips.data._order import sortable

    if is_numeric_dtype(when.dtype) or is_datetime64_any_dtype(when.dtype):
        return np.lexsort(sortable(when, len(when))[0].T[::-1])
    texts = np.array([str(value) for value in when])
    return np.lexsort((texts, as_numbers(texts)))


def _catalogue(text: str) -> list[str]:
    names = Path(text).read_text(encoding="utf-8").split("\n") if os.path.isfile(text) else text.split(",")
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
