"""MNIST: images of digits."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from experiments.datasets.home import data_home, find_files

__all__ = ["load_mnist"]

_HOW_TO_GET = (
    "It is the data set of Y. LeCun, C. Cortes and C. J. C. Burges: a file mnist.npz of uint8 arrays x_train (60000, 784), "
    "y_train, x_test (10000, 784) and y_test. load_mnist(download=True) fetches it from OpenML through scikit-learn instead."
)


def load_mnist(download: bool = False, grey: bool = False) -> Bunch:
    """70,000 images of handwritten digits, 28 by 28 pixels, black or white (a pixel is on if its grey value is above 0).

    Parameters
    ----------
    download : bool
        If ``mnist.npz`` is missing, fetch it from OpenML (data set "mnist_784") and keep it in the data folder.
    grey : bool
        Grey values, 0 to 255, in place of black and white.

    Returns
    -------
    Bunch
        ``data``: (60000, 784) bool, uint8 if grey; ``target``: (60000,) uint8, the training images in the original order;
        ``test_data`` (10000, 784) and ``test_target`` (10000,).

    Raises
    ------
    FileNotFoundError
        If ``mnist.npz`` is not in ``VIPS_DATA_HOME`` and ``download`` is False.
    """
    if download and not (data_home() / "mnist.npz").is_file():
        raw = fetch_openml("mnist_784", version=1, as_frame=False, parser="liac-arff", data_home=data_home())
        images, digits = raw.data, raw.target.astype(np.uint8)
        parts = images[:60_000], digits[:60_000], images[60_000:], digits[60_000:]
    else:
        (path,) = find_files(["mnist.npz"], "MNIST", _HOW_TO_GET)
        with np.load(path) as arrays:
            parts = tuple(arrays[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    train, test = (parts[i] if grey else parts[i] > 0 for i in (0, 2))
    return Bunch(data=train, target=parts[1], test_data=test, test_target=parts[3])
