"""The options of experiments and benchmarks: two that all have, and those by which several name the same thing."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path

from experiments.results import ENDINGS, results_folder

__all__ = ["fill", "folder_of", "parser_of"]


def parser_of(program: str, description: str | None, *shared: str) -> argparse.ArgumentParser:
    """A parser with the options ``--quick`` and ``--out``, and with those of ``SHARED`` that the experiment can use.

    Parameters
    ----------
    program : str
        The command after ``python -m``.
    description : str
        The help shows its first line.
    *shared : str
        Names of further options. argparse refuses the others.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}", description=(description or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the same code on a tiny instance, in seconds; missing data are generated; writes nothing without --out",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write the results there")
    for name in shared:
        parser.add_argument(f"--{name}", **SHARED[name])
    return parser


def fill(options: argparse.Namespace, full: dict, quick: dict) -> None:
    """Options that were not given: as in ``full``, or in a quick run as in ``quick``."""
    for name, value in (quick if options.quick else full).items():
        if name in options and getattr(options, name) is None:
            setattr(options, name, value)


def folder_of(name: str, options: argparse.Namespace) -> Path | None:
    """The folder for the results of a run: ``--out``, else ``experiments/results/<name>``, or None for a quick run.

    A quick run first prints that it is one.
    """
    if options.quick:
        print("A quick run on a tiny instance. Its numbers are not results; texts name the sizes of the full run.")
    if getattr(options, "data", None):
        os.environ["VIPS_DATA_HOME"] = str(options.data)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        return options.out
    return None if options.quick else results_folder(name)


def _positive(kind: Callable) -> Callable:
    """A reader of positive finite numbers."""

    def read(text: str):
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError
        return value

    read.__name__ = f"positive {kind.__name__}"  # argparse says "invalid positive int value: '0'"
    return read


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder: name the one that holds the files of data/README.md")
    return Path(text).absolute()


SHARED = {
    "sigmas": {"type": _positive(float), "nargs": "+", "metavar": "σ", "help": "noise multipliers"},
    "sizes": {"type": _positive(int), "nargs": "+", "metavar": "S", "help": "numbers of records in a batch"},
    "topics": {"type": _positive(int), "metavar": "K", "help": "number of topics"},
    "epsilons": {"type": _positive(float), "nargs": "+", "metavar": "ε", "help": "budgets"},
    "seeds": {"type": _positive(int), "metavar": "N", "help": "fits of every line, each with a seed of its own"},
    "data": {"type": _folder, "metavar": "FOLDER", "help": "where the data files are, in place of VIPS_DATA_HOME"},
    "format": {"choices": list(ENDINGS), "default": "markdown", "help": "form of the tables (markdown)"},
}
