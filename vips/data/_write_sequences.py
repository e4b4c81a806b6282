"""Write sequences into a folder, as they come."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from vips._files import private_file, sync_folder, whole_folder
from vips.data._arrays import PARTITION_SIZE
from vips.data._sequence_shards import OFFSETS, VALUES, SequenceShards
from vips.data._sequences import Sequences

__all__ = ["write_sequences"]

_MOST_STEPS = 2**22  # held until a pair of files is written


def write_sequences(
    parts: Sequences | Iterable[Sequences | Sequence[np.ndarray]],
    to: str | os.PathLike,
    *,
    n_features: int | None = None,
) -> SequenceShards:
    """Write sequences into a new folder of memory-mapped files. Later, ``SequenceShards(to)`` is the same source.

    Parameters
    ----------
    parts : Sequences, or iterable of Sequences or of lists of arrays
        A generator reads, say, one file after the other; ``source.chunks(100_000)`` are the sequences of another source.
    to : path
        Folder that does not exist yet. It holds records, and only its owner may read it, whatever the umask: give others the
        permissions that they have for the data.
    n_features : int, optional
        Number of columns: public, and needed for lists. An array of another width is a missing sequence.

    Returns
    -------
    SequenceShards

    Raises
    ------
    FileExistsError
        If ``to`` exists.
    ValueError
        If there is no part, if one has another number of columns than the first, or a list comes without ``n_features``.

    Guarantees
    ----------
    The folder appears as a whole or not at all. A process that is killed leaves a hidden folder ``*.partial`` beside it.

    Notes
    -----
    Memory: a part, and four million steps. A pair of files has at most 16,384 sequences, or those of one part.

    Examples
    --------
    >>> import tempfile
    >>> from vips.data import SequenceShards, write_sequences
    >>> months = ([np.array([0, 2, 1]), np.array([month])] for month in range(12))
    >>> source = write_sequences(months, to=tempfile.mkdtemp() + "/visits", n_features=1)
    >>> source.n_records
    24
    """
    with whole_folder(to) as folder:
        width, i = n_features, -1
        for i, part in enumerate(_gathered(parts, n_features)):
            width = part.shape[1] if width is None else width
            if part.shape[1] != width:
                raise ValueError(f"A part has {part.shape[1]} columns, not {width}.")
            _write(folder / f"{i:05d}{VALUES}", part.values)
            _write(folder / f"{i:05d}{OFFSETS}", part.offsets)
        if i < 0:
            raise ValueError("There is no part to write.")
        sync_folder(folder)
    return SequenceShards(to)


def _gathered(parts, n_features: int | None) -> Iterator[Sequences]:
    """Parts, of which small ones are put together."""
    held, n_sequences, n_steps = [], 0, 0
    for part in [parts] if isinstance(parts, Sequences) else parts:
        if not isinstance(part, Sequences):
            if n_features is None:
                raise ValueError(
                    "Lists need the number of columns, which one array would decide otherwise: write n_features=1, say."
                )
            part = Sequences.from_list(part, n_features)
        is_full = n_sequences + len(part) > PARTITION_SIZE or n_steps + len(part.values) > _MOST_STEPS
        is_other = held and (part.values.dtype != held[0].values.dtype or part.shape[1] != held[0].shape[1])
        if held and (is_full or is_other):
            yield held[0] if len(held) == 1 else Sequences.joined(held)
            held, n_sequences, n_steps = [], 0, 0
        held.append(part)
        n_sequences, n_steps = n_sequences + len(part), n_steps + len(part.values)
    if held:
        yield held[0] if len(held) == 1 else Sequences.joined(held)


def _write(path: Path, array: np.ndarray) -> None:
    with private_file(path) as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
