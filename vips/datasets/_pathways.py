"""Generated pathways of patients through a hospital."""

from __future__ import annotations

import numpy as np
from sklearn.utils import Bunch

from vips._support.validation import check_integer
from vips.core.mechanism.random_state import RandomStateLike, as_generator

__all__ = ["make_pathways"]

_STAGES = {  # how often each event happens in a stage
    "assessment": {"visit": 5, "blood test": 3, "x-ray": 2, "mri": 1, "referral": 2},
    "surgery": {"anaesthesia": 4, "operation": 4, "blood test": 1, "transfusion": 1},
    "intensive care": {"ventilation": 4, "blood test": 3, "transfusion": 1, "antibiotics": 2},
    "ward": {"round": 6, "blood test": 2, "antibiotics": 2, "painkillers": 3, "x-ray": 1},
    "rehabilitation": {"physiotherapy": 6, "visit": 1, "painkillers": 1, "discharge letter": 2},
}
_MOVES = [
    [0.70, 0.15, 0.02, 0.10, 0.03],
    [0.00, 0.50, 0.20, 0.30, 0.00],
    [0.00, 0.03, 0.75, 0.22, 0.00],
    [0.02, 0.03, 0.02, 0.78, 0.15],
    [0.08, 0.00, 0.00, 0.02, 0.90],
]
_FIRST = [0.75, 0.05, 0.05, 0.15, 0.00]


def make_pathways(n_patients: int = 20_000, *, random_state: RandomStateLike = None) -> Bunch:
    """Events of patients in five stages of a stay, as a table with a row for each event.

    Parameters
    ----------
    n_patients : int
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Bunch
        ``patient`` and ``day``, integers of shape (n_events,); ``event``, strings of shape (n_events,); ``event_names``, the 14
        possible events; ``stage_names``, ``startprob``, ``transmat`` and ``emissionprob``, the truth; ``stage``, the hidden
        stage of each event. Rows are in no order.
    """
    check_integer("n_patients", n_patients)
    rng = as_generator(random_state)
    names = sorted({event for events in _STAGES.values() for event in events})
    emissions = np.array([[events.get(name, 0) for name in names] for events in _STAGES.values()], dtype=float)
    emissions /= emissions.sum(axis=1, keepdims=True)
    start, moves = np.array(_FIRST), np.array(_MOVES)
    lengths = np.minimum(3 + rng.geometric(1.0 / 18.0, n_patients), 60)
    patient = np.repeat(np.arange(n_patients), lengths)
    step = np.arange(len(patient)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    stage = np.empty(len(patient), np.int64)
    for t in range(lengths.max(initial=0)):
        rows = np.flatnonzero(step == t)
        below = np.cumsum(start)[None] if t == 0 else np.cumsum(moves, axis=1)[stage[rows - 1]]
        stage[rows] = (rng.random((len(rows), 1)) >= below[:, :-1]).sum(axis=1)
    event = (rng.random((len(stage), 1)) >= np.cumsum(emissions, axis=1)[stage, :-1]).sum(axis=1)
    order = rng.permutation(len(patient))
    return Bunch(
        patient=patient[order],
        day=(2 * step + rng.integers(0, 2, len(step)))[order],
        event=np.array(names)[event[order]],
        stage=stage[order],
        event_names=names,
        stage_names=list(_STAGES),
        startprob=start,
        transmat=moves,
        emissionprob=emissions,
    )
