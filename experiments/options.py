"""The two options that every experiment and every benchmark has."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.results import results_folder

__all__ = ["folder_of", "parser_of"]


def parser_of(program: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the options ``--quick`` and ``--out``.

    Parameters
    ----------
    program : str
        The command after ``python -m``.
    description : str
        The help shows its first line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the same code on a tiny instance, in seconds; missing data are generated; writes nothing without --out",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write the results there")
    return parser


def folder_of(name: str, options: argparse.Namespace) -> Path | None:
    """The folder for the results of a run: ``--out``, else ``experiments/results/<name>``, or None for a quick run.

    A quick run first prints that it is one.
    """
    if options.quick:
        print("A quick run on a tiny instance. Its numbers are not results; texts name the sizes of the full run.")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        return options.out
    return None if options.quick else results_folder(name)
