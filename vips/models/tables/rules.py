"""Rules of a table: answers of two columns that no record has together, such as of skipped questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vips.models.tables.columns import Answers, Bins

__all__ = ["Rule", "obeying", "rules_declared"]


class Rule(NamedTuple):
    """Places of two columns, and levels of either, shape (d,), bool, that no record has together."""

    columns: list[int]
    one: np.ndarray
    other: np.ndarray


def rules_declared(rules: Sequence, columns: Mapping[object, Answers | Bins]) -> list[Rule]:
    """The levels that each rule keeps apart.

    Parameters
    ----------
    rules : sequence of mapping
        Two columns each, and answers of either.
    columns : mapping
        By name, in the order of the levels.

    Raises
    ------
    TypeError, ValueError
        If a rule is none, or rules leave a column no answer beside one of another column.
    """
    if not isinstance(rules, list | tuple):
        raise TypeError(
            f'`rules` must be a list: rules=[{{"smoker": ["no"], "cigarettes": "(answered)"}}], say. Got {rules!r}.'
        )
    starts = np.cumsum([0, *(len(column.labels) for column in columns.values())])
    places = {name: slice(*starts[j : j + 2]) for j, name in enumerate(columns)}
    apart = np.zeros((starts[-1], starts[-1]), dtype=bool)
    stated = []
    for rule in rules:
        if not isinstance(rule, Mapping) or len(rule) != 2 or not set(rule) <= set(columns):
            raise ValueError(
                "A rule maps the names of two declared columns to answers that no record has together: "
                f'{{"smoker": ["no"], "cigarettes": "(answered)"}}, say. Got {rule!r}.'
            )
        sides = []
        for name, answers in rule.items():
            side = np.zeros(starts[-1], dtype=bool)
            side[places[name]] = columns[name].places(answers, repr(name))
            sides.append(side)
        if all(side[places[name]][columns[name].missing] for side, name in zip(sides, rule, strict=True)):
            raise ValueError(
                f"A rule must let both cells be missing, since a row that breaks it counts so. Got {rule!r}."
            )
        stated.append(Rule([list(columns).index(name) for name in rule], *sides))
        apart |= np.outer(*sides) | np.outer(*sides).T
    for name, place in places.items():
        alone = apart[:, place].all(axis=1)
        for other, levels in places.items():
            if other != name and alone[levels].any():
                answer = columns[other].labels[int(np.flatnonzero(alone[levels])[0])]
                raise ValueError(
                    f"Rules leave {name!r} no answer beside {answer!r} of {other!r}: leave one of them out."
                )
    return stated


def obeying(levels: np.ndarray, rules: Sequence[Rule], missing: np.ndarray) -> np.ndarray:
    """The levels of records, in which both cells that break a rule are missing; each record's from its own alone.

    Parameters
    ----------
    levels : ndarray of int, shape (n_records, n_columns)
        Counted over all columns.
    rules : sequence of Rule
    missing : ndarray of int, shape (n_columns,)
        The level of a missing cell of each column.
    """
    levels, breaks = levels.copy(), True
    while breaks:  # a cell becomes missing at most once
        breaks = False
        for rule in rules:
            j, k = rule.columns
            broken = rule.one[levels[:, j]] & rule.other[levels[:, k]]
            levels[np.ix_(broken, rule.columns)] = missing[rule.columns]
            breaks |= bool(broken.any())
    return levels
