"""Real corpora and tables. Nothing is downloaded unless you ask for it (``load_mnist(download=True)``)."""

from experiments.datasets.adult import load_adult
from experiments.datasets.diabetes import load_diabetes_readmission
from experiments.datasets.docstrings import load_docstrings
from experiments.datasets.masc import load_masc
from experiments.datasets.mnist import load_mnist
from experiments.datasets.wikipedia import load_wikipedia

__all__ = [
    "load_adult",
    "load_diabetes_readmission",
    "load_docstrings",
    "load_masc",
    "load_mnist",
    "load_wikipedia",
]
