"""The one place where noise is drawn, and where the randomness of a fit comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from randomgen import AESCounter

from vips.core.mechanism.lattice import Lattice
from vips.core.mechanism.random_state import entropy_of
from vips.core.mechanism.rounded_gaussian import rounded_gaussian
from vips.core.mechanism.secret_bits import secret_bits

if TYPE_CHECKING:
    from vips.core.sums import Block

__all__ = ["Randomness", "add_discrete_noise", "add_noise", "discrete_noise", "gaussian_noise", "mirrored_upper"]


def gaussian_noise(shape: tuple[int, ...], symmetric: bool, std: float, rng: np.random.Generator) -> np.ndarray:
    """Noise for the sum of one block: independent normals of standard deviation ``std``.

    A symmetric block has fewer coordinates than entries. Its isometric coordinates are the diagonal and √2 times the
    upper triangle; noise of ``std`` on each of those is ``std`` on the diagonal and ``std / √2`` off it, mirrored.
    """
    noise = rng.standard_normal(shape)
    noise *= std
    if not symmetric:
        return noise
    size = shape[-1]
    noise *= 0.5 * np.eye(size) + np.triu(np.full((size, size), np.sqrt(0.5)), k=1)
    return noise + np.swapaxes(noise, -1, -2)


def add_noise(
    total: Mapping[str, np.ndarray], blocks: Mapping[str, Block], std: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """``total`` with independent noise of ``std × scale`` on every block, drawn in the order of ``blocks``."""
    noisy = {}
    for name, block in blocks.items():
        noisy[name] = gaussian_noise(block.shape, block.symmetric, std * block.scale, rng)
        noisy[name] += total[name]
    return noisy


def add_discrete_noise(
    total: Mapping[str, np.ndarray], blocks: Mapping[str, Block], lattice: Lattice, bits: AESCounter
) -> dict[str, np.ndarray]:
    """The values of ``total`` (in units of ``lattice``) plus a rounded Gaussian in every isometric coordinate."""
    return {
        name: lattice.values(total[name] + discrete_noise(block, lattice, bits), block)
        for name, block in blocks.items()
    }


def discrete_noise(block: Block, lattice: Lattice, bits: AESCounter) -> np.ndarray:
    """Noise for the sum of one block, in units of ``lattice`` (int64)."""
    noise = rounded_gaussian(int(np.prod(block.shape)), lattice.noise_steps, bits).reshape(block.shape)
    return mirrored_upper(noise) if block.symmetric else noise


def mirrored_upper(array: np.ndarray) -> np.ndarray:
    """Symmetric matrices with the upper triangles of ``array``, shape (..., size, size)."""
    upper = np.triu(array)
    return upper + np.swapaxes(np.triu(upper, k=1), -1, -2)


@dataclass(frozen=True)
class Randomness:
    """The sources of randomness of one fit. Never stored on a model, saved, or pickled.

    Sampling and noise are streams of AES-128 in counter mode.

    Attributes
    ----------
    initial : Generator
        For the starting point, which carries no private information.
    sampling_key : int
        Secret key of the coins (128 bits).
    noise_seed : SeedSequence or None
        None: every call of ``noise_bits`` takes a fresh key from the operating system.
    """

    initial: np.random.Generator
    sampling_key: int
    noise_seed: np.random.SeedSequence | None

    @classmethod
    def for_fit(cls, random_state: Any, reproducible: bool) -> Randomness:
        """Fresh randomness for one fit.

        Parameters
        ----------
        random_state : None, int, Generator or RandomState
            Seeds the initialisation, and the rest only if ``reproducible``.
        reproducible : bool
            False for every fit that carries a guarantee: sampling and noise then come from the operating system,
            so that two fits (clones, folds, two ε at one seed) never share a draw that could be subtracted.
        """
        seed = np.random.SeedSequence(entropy_of(random_state))
        initial, sampling, noise = seed.spawn(3)
        key = _key(sampling) if reproducible else secret_bits(128)
        return cls(np.random.default_rng(initial), key, noise if reproducible else None)

    def noise_bits(self, step: int) -> AESCounter:
        """Random bits for the noise of one step."""
        if self.noise_seed is None:
            return AESCounter(key=secret_bits(128))
        seed = self.noise_seed
        return AESCounter(key=_key(np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, step))))


def _key(seed: np.random.SeedSequence) -> int:
    words = seed.generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])
