"""The only source of secret randomness: keys of coins and of noise.

Every draw of the package comes from :func:`secret_bytes`, which has no argument but a length, and which no variable, file or
setting can replace.
"""

from __future__ import annotations

import os

__all__ = ["secret_bits", "secret_bytes"]


def secret_bytes(n_bytes: int) -> bytes:
    """Bytes from the operating system's generator for cryptography."""
    return os.urandom(n_bytes)


def secret_bits(n_bits: int) -> int:
    """A whole number below 2**n_bits, each with the same probability."""
    n_bytes = -(-n_bits // 8)
    return int.from_bytes(secret_bytes(n_bytes), "little") >> (8 * n_bytes - n_bits)
