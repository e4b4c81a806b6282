"""Binary images of digits: the small images in scikit-learn."""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.utils import Bunch

__all__ = ["load_digits_binary"]


def load_digits_binary() -> Bunch:
    """1,797 images of handwritten digits, 8 by 8 pixels, on where the grey value of scikit-learn's digits is at least half.

    Returns
    -------
    Bunch
        ``data``: (1797, 64) bool; ``target``: (1797,) int.

    Examples
    --------
    >>> load_digits_binary().data.shape
    (1797, 64)
    """
    digits = load_digits()
    return Bunch(data=digits.data >= 8, target=digits.target)
