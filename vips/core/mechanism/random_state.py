"""What scikit-learn users call ``random_state``: None, an integer, a Generator or a RandomState."""

from __future__ import annotations

import numpy as np

from vips.core.mechanism.secret_bits import secret_bits

__all__ = ["RandomStateLike", "as_generator", "entropy_of"]

RandomStateLike = int | np.random.Generator | np.random.RandomState | None


def as_generator(random_state: RandomStateLike) -> np.random.Generator:
    """A generator for draws that are not part of a private fit.

    Parameters
    ----------
    random_state : None, int, Generator or RandomState
        None draws a seed from the operating system. A Generator is returned itself, so that it moves on; a RandomState gives a
        seed, and moves on too.

    Raises
    ------
    ValueError
        For anything else.

    Examples
    --------
    >>> as_generator(0).integers(10, size=3).tolist()
    [8, 6, 5]
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(entropy_of(random_state))


def entropy_of(random_state: RandomStateLike) -> int | list[int]:
    """Entropy words for a ``numpy.random.SeedSequence``.

    Raises
    ------
    ValueError
        For anything that is no ``random_state``.
    """
    if random_state is None:
        return secret_bits(128)
    if isinstance(random_state, np.random.Generator):
        return random_state.integers(2**32, size=4).tolist()
    if isinstance(random_state, np.random.RandomState):
        return random_state.randint(2**31, size=4).tolist()
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    raise ValueError(
        f"`random_state` must be None, a non-negative integer, a Generator or a RandomState, got {random_state!r}."
    )
