"""Data sets of quick runs: the real ones if their files exist, else generated records of the same shape.

A run at full size never uses generated records in place of real ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit
from sklearn.utils import Bunch

from experiments.datasets import load_adult, load_diabetes_readmission, load_mnist, load_wikipedia
from experiments.datasets.adult_columns import COLUMNS
from vips.datasets import load_digits_binary, make_lda_corpus, make_sparse_binary

__all__ = [
    "adult",
    "diabetes",
    "generated_adult",
    "generated_documents",
    "generated_grey_images",
    "generated_images",
    "generated_patients",
    "grey_digits",
    "mnist",
    "wikipedia",
]

N_ADULTS, N_PATIENTS, N_IMAGES = 1500, 1500, 1500
N_WORDS, N_TOPICS, LENGTH, N_FEATURES = 7702, 5, 100, 1923


def found_or(load: Callable[[], Bunch], generate: Callable[[], Bunch], quick: bool) -> Bunch:
    """The result of ``load``; in a quick run whose files are missing, the result of ``generate``; ``generated`` says which.

    Raises
    ------
    FileNotFoundError
        If files are missing and the run is not quick.
    """
    try:
        return Bunch(**load(), generated=False)
    except FileNotFoundError:
        if not quick:
            raise
        print("The data files are missing: generated data of the same shape take their place.")
        return Bunch(**generate(), generated=True)


def wikipedia(n_documents: int, quick: bool) -> Bunch:
    """``load_wikipedia``."""
    return found_or(lambda: load_wikipedia(n_documents), lambda: generated_documents(n_documents), quick)


def adult(quick: bool) -> Bunch:
    """``load_adult``."""
    return found_or(load_adult, generated_adult, quick)


def diabetes(quick: bool) -> Bunch:
    """``load_diabetes_readmission``."""
    return found_or(load_diabetes_readmission, generated_patients, quick)


def mnist(quick: bool) -> Bunch:
    """``load_mnist``."""
    return found_or(load_mnist, generated_images, quick)


def grey_digits(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Training and test images with values in [0, 1], shape (n_images, 28, 28)."""
    bunch = found_or(lambda: load_mnist(grey=True), generated_grey_images, quick)
    return tuple(images.reshape(-1, 28, 28) / 255.0 for images in (bunch.data, bunch.test_data))


def generated_documents(n_documents: int) -> Bunch:
    """As ``load_wikipedia``: documents of five topics over as many words."""
    corpus = make_lda_corpus(n_documents, n_topics=N_TOPICS, n_words=N_WORDS, document_length=LENGTH, random_state=0)
    return Bunch(counts=corpus.counts, vocabulary=[f"word{i}" for i in range(N_WORDS)])


def generated_adult() -> Bunch:
    """As ``load_adult``: columns are drawn one by one, and the income depends on three of them.

    ``probability`` is the chance of each person's ``target``.
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: _drawn(allowed, rng) for name, allowed in COLUMNS.items()})
    schooling, hours = (
        (table[name] - table[name].mean()) / table[name].std() for name in ("education-num", "hours-per-week")
    )
    married = table["marital-status"] == "Married-civ-spouse"
    probability = expit(-1.5 + 1.5 * schooling + hours + 2.0 * married).to_numpy()
    return Bunch(data=table, target=rng.random(N_ADULTS) < probability, columns=COLUMNS, probability=probability)


def _drawn(allowed: tuple[int, int] | list[str], rng: np.random.Generator) -> np.ndarray:
    """Numbers between two bounds, or categories."""
    if isinstance(allowed, tuple):
        return rng.integers(allowed[0], allowed[1] + 1, N_ADULTS)
    return rng.choice(allowed, N_ADULTS)


def generated_patients() -> Bunch:
    """As ``load_diabetes_readmission``: sparse binary records with as many features."""
    return make_sparse_binary(N_PATIENTS, N_FEATURES, 0.09, n_active=23.0, random_state=0)


def generated_grey_images() -> Bunch:
    """As ``load_mnist(grey=True)``: images of :func:`generated_images` with random brightness."""
    bunch, rng = generated_images(), np.random.default_rng(0)
    grey = {
        name: (bunch[name] * rng.uniform(100.0, 255.0, (len(bunch[name]), 1))).astype(np.uint8)
        for name in ("data", "test_data")
    }
    return Bunch(**(bunch | grey))


def generated_images() -> Bunch:
    """As ``load_mnist``: scikit-learn's small digits, three times as large and with a border of two pixels."""
    digits = load_digits_binary()
    enlarged = np.kron(digits.data.reshape(-1, 8, 8), np.ones((1, 3, 3), bool))
    images = np.pad(enlarged, ((0, 0), (2, 2), (2, 2))).reshape(len(enlarged), -1)
    n = N_IMAGES
    return Bunch(data=images[:n], target=digits.target[:n], test_data=images[n:], test_target=digits.target[n:])
