"""What the shell takes: commands and their options, without the modules that run them, so that ``--help`` is quick."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path

__all__ = ["STATED", "configured", "parser_of_commands"]

_ENDS = (
    "Exit status: 0, done; 1, `certificate check` found a difference; 2, an error, in one line on the error stream; 3, a "
    "budget has no room, and nothing was charged; 130, interrupted by Ctrl-C; 141, nobody reads the output."
)
_TABLE = "a .parquet, .csv or .csv.gz table, or a folder of such shards"
_MODELS = ["logistic", "topics", "pathways"]
STATED = {
    "responsible": "who is responsible for the processing",
    "chosen_by": "who chose ε and δ",
    "reason": "why these",
}


def configured(arguments: list[str]) -> list[str]:
    """The arguments, with those in a file in the place of ``--config FILE``; what stands behind it overrides them."""
    for i, option in enumerate(arguments):
        option, equals, path = option.partition("=")
        if option == "--config" and (equals or arguments[i + 1 :]):
            text = Path(path or arguments[i + 1]).read_text(encoding="utf-8")
            return [*arguments[:i], *shlex.split(text, comments=True), *arguments[i + 1 + (not equals) :]]
    return arguments


def parser_of_commands() -> argparse.ArgumentParser:
    """The parser of ``python -m vips``: what it parses has ``run``, a function of the options."""
    parser = argparse.ArgumentParser(
        prog="python -m vips", description="Private variational Bayes: fits, plans and ledgers.", epilog=_ENDS
    )
    parser.add_argument("--version", action="version", version=f"vips {metadata.version('vips')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_fit, _add_predict, _add_inspect, _add_certificate, _add_plan, _add_compile, _add_ledger):
        add(commands)
    return parser


def _command(commands, name: str, runs: str, what: str, description: str = "") -> argparse.ArgumentParser:
    """A parser of a command that runs "module.function"."""
    description = description or f"{what[0].upper()}{what[1:]}."
    parser = commands.add_parser(name, help=what, description=description, epilog=_ENDS)
    parser.add_argument(
        "--config", metavar="FILE", help="a file of options, as on the command line; # begins a comment"
    )
    parser.add_argument("--quiet", action="store_true", help="no notes and no progress; results and errors stay")
    parser.set_defaults(run=_later(*runs.split(".")))
    return parser


def _later(module: str, function: str) -> Callable[[argparse.Namespace], int | None]:
    return lambda options: getattr(import_module(f"vips.tools.commands.{module}"), function)(options)


def _add_fit(commands) -> None:
    parser = _command(
        commands, "fit", "fit.fit", "a private fit to a table, texts, or a table of events",
        "Fit a model privately. All that is learnt is paid for from ε and δ.",
    )  # fmt: skip
    add = parser.add_argument
    add("data", help=f"{_TABLE}; for topics also .jsonl, or a folder of .txt files")
    add("--model", required=True, choices=_MODELS)
    add("--epsilon", type=float, required=True)
    add("--delta", type=float, required=True)
    add("--unit", metavar="COLUMN", help="ids of persons, each protected with all rows; 'folder' for folders of texts")
    add("--target", metavar="COLUMN", help="logistic: what is predicted")
    add("--classes", metavar="A,B", help="logistic: the two values of the target, the second is yes; 0,1 for numbers")
    add(
        "--column", action="append", default=[], metavar="NAME=WHAT",
        help="logistic: number, date, category, LOW:HIGH (of numbers or dates; LOW:HIGH,(missing) adds a feature of missing "
        "cells), A,B,C or drop; may be repeated. What is declared costs nothing. pathways: ORDER=number of texts",
    )  # fmt: skip
    add("--weight", metavar="COLUMN", help="logistic: how much each row counts, as the weights of a survey do")
    add("--max-weight", type=float, help="the largest weight, a public number; larger ones count as this one")
    add("--text", metavar="COLUMN", help="topics: texts, in a table or in JSON lines")
    add("--stop-words", metavar="A,B,C", help="topics: words to leave out, or a file of lines; default: English")
    add("--event", metavar="COLUMN", help="pathways: what happened")
    add("--order", metavar="COLUMN", help="pathways: when")
    add("--catalogue", metavar="A,B,C", help="pathways: all possible events, or a file with one in each line")
    add("--states", type=int, default=5, help="pathways: number of states")
    add("--ledger", help="file of a budget, which `python -m vips ledger create` makes")
    add("--checkpoint", metavar="FILE", help="where the fit goes on if it was killed; one file for each fit")
    add("--save", metavar="FILE", help="the fitted model")
    add("--report", metavar="FILE", help="the certificate, as HTML")
    add("--json", action="store_true", help="print results and the privacy statement as one JSON object")
    add("--purpose", default="", help="what the fit is for: in the ledger, and on the certificate")
    for name, whose in STATED.items():
        add(f"--{name.replace('_', '-')}", default="", metavar="TEXT", help=f"{whose}, on the certificate")
    _add_reading(parser)


def _add_predict(commands) -> None:
    what = "predictions of a saved model for another file, which the guarantee does not cover"
    parser = _command(commands, "predict", "fit.predict", what)
    parser.add_argument("model", help="what `fit --save` wrote")
    parser.add_argument("data")
    parser.add_argument("--out", required=True, help="a .csv or .parquet table")
    _add_reading(parser)


def _add_inspect(commands) -> None:
    what = "how the cells of a table are read, and which are not: not private, for its holder"
    parser = _command(commands, "inspect", "inspect.inspect_table", what)
    parser.add_argument("data", help=_TABLE)
    parser.add_argument("--column", action="append", default=[], metavar="NAME=WHAT", help="as in fit; may be repeated")
    _add_reading(parser)


def _add_certificate(commands) -> None:
    certificate = commands.add_parser("certificate", help="check a certificate", epilog=_ENDS)
    actions = certificate.add_subparsers(required=True, metavar="ACTION")
    what = "whether a page, the fitted model and the ledger agree"
    parser = _command(actions, "check", "inspect.check_certificate", what)
    parser.add_argument("page", help="what `to_html` or `fit --report` wrote")
    parser.add_argument("--model", metavar="FILE", help="what `save` or `fit --save` wrote")
    parser.add_argument("--ledger", metavar="FILE", help="alone for counts and models of one's own")


def _add_plan(commands) -> None:
    parser = _command(
        commands, "plan", "plan.plan", "widths of intervals before a fit, or ε from noise and steps",
        "With --model: how wide intervals of `fit` will be, or with --width the ε that they need; no record is read. Without: "
        "give two of --epsilon, --noise-multiplier and --n-steps; the third is computed.",
    )  # fmt: skip
    add = parser.add_argument
    add("--delta", type=float, required=True)
    add("--epsilon", type=float)
    add("--model", choices=_MODELS)
    add("--records", type=int, help="about how many records or persons there are")
    many = {"action": "append", "default": []}
    add("--column", **many, metavar="NAME=WHAT", help="logistic: as `fit` takes it; all columns")
    add("--words", type=int, default=5000, help="topics: about how many words the vocabulary has")
    add("--events", type=int, help="pathways: number of possible events")
    add("--states", type=int, default=5, help="pathways: number of states")
    add("--outcome", type=float, help="logistic: public share of yes; default: about half")
    add("--width", **many, metavar="NAME=NUMBER", help="widest 95 %% interval that answers the question")
    add("--noise-multiplier", type=float, help="noise standard deviation ÷ clip norm")
    add("--n-steps", type=int)
    add("--sampling-rate", type=float)
    add("--sampling", choices=["poisson", "full"], default="poisson")
    add("--relation", choices=["add_or_remove", "replace_one"], default="add_or_remove")
    add("--noise", choices=["gaussian", "discrete"], default="gaussian")
    add("--accountant", default="pld", help="default: pld, the tightest")


def _add_compile(commands) -> None:
    parser = _command(
        commands, "compile", "compile.compile_kernels", "compile the kernels, when an image is built",
        "Fit every model to a few generated records, so that Numba keeps the compiled kernels: in its cache (NUMBA_CACHE_DIR), "
        "or beside the installed files. Later processes then start at once.",
    )  # fmt: skip
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="classes, such as LatentDirichletAllocation; default: all"
    )


def _add_ledger(commands) -> None:
    actions = commands.add_parser("ledger", help="create, show, check and close ledgers", epilog=_ENDS)
    actions = actions.add_subparsers(required=True, metavar="ACTION")
    create = _command(actions, "create", "ledger.create", "begin a budget for a data set").add_argument
    create("file")
    create("--dataset", required=True, help="its name, for people")
    create("--epsilon", type=float, required=True)
    create("--delta", type=float, required=True)
    create("--pure", type=float, default=0.0, help="a part of ε for mechanisms without δ, such as Laplace noise")
    create("--unit", help="column of ids: only fits that protect its persons are accepted")
    create("--relation", choices=["add_or_remove", "replace_one"], default="add_or_remove")
    show = _command(actions, "show", "ledger.show", "history and remaining budget")
    head = _command(actions, "head", "ledger.head", "number and hash of the last entry; keep them elsewhere")
    verify = _command(actions, "verify", "ledger.verify", "check every hash")
    close = _command(actions, "close", "ledger.close", "end a run that was killed, and give back its unreleased steps")
    for action in (show, head, verify, close):
        action.add_argument("file")
    show.add_argument("--json", action="store_true", help="the same as one JSON object")
    verify.add_argument("--head", help="what `head` printed earlier")
    close.add_argument("name", metavar="run", help="name of the run, as `show` prints it")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    """Add an option for each setting of a :class:`vips.tools.commands.reading.Reading`."""
    add = parser.add_argument_group("how tables are written").add_argument
    add("--separator", metavar="SIGN", type=lambda sign: sign.replace(r"\t", "\t"), help="of a CSV file, \\t for a tab")
    add("--decimal", metavar="SIGN", help="in numbers that are text; default: a point")
    add("--thousands", metavar="SIGN", help="in numbers that are text; default: none")
    add("--encoding", help="of a CSV file, or of .txt files; default: utf-8")
    many = {"action": "append", "help": "of dates that are text, as in %%d.%%m.%%Y; the first that fits a cell counts"}
    add("--date-format", metavar="FORMAT", dest="date_formats", **many)
    add("--missing", metavar="WORD", **many | {"help": "a cell of a CSV file that means missing; may be repeated"})
