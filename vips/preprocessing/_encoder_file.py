"""Encoders as files of arrays and JSON, without pickle. What is read is checked: it may be forged."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips.persistence.archive import write_archive
from vips.persistence.settings import decode, encode

__all__ = ["SavableEncoder", "names_to_json", "restore_names"]


class SavableEncoder:
    """Base of encoders that can be saved."""

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted encoder to a file of arrays and JSON, without pickle; ``vips.load`` reads it.

        Raises
        ------
        NotFittedError
        TypeError
            If a setting cannot be written as data, such as a function.
        """
        check_is_fitted(self)
        write_archive(path, "encoder", {"encoder": self.to_json() | self.fit_to_json()}, {})

    def to_json(self) -> dict:
        """Class and settings. Raises TypeError if a setting cannot be written as data."""
        parameters = {name: encode(value) for name, value in self.get_params(deep=False).items()}
        return {"class": type(self).__name__, "parameters": parameters}

    @classmethod
    def from_json(cls, values: dict) -> Self:
        """The fitted encoder that :meth:`to_json` and :meth:`fit_to_json` describe; an error if no fit makes it."""
        encoder = cls(**{name: decode(value) for name, value in values["parameters"].items()})
        encoder.restore_fit(values)
        return encoder

    def fit_to_json(self) -> dict:
        """What ``fit`` has set."""
        report = getattr(self, "privacy_", None)
        return self.learnt_to_json() | ({} if report is None else {"report": report.to_plain()})

    @abstractmethod
    def learnt_to_json(self) -> dict:
        """The same without the report."""

    @abstractmethod
    def restore_fit(self, values: dict) -> None:
        """Inverse of :meth:`fit_to_json`, checked against the settings."""


def names_to_json(encoder) -> dict:
    """Number and names of the columns that an encoder was fitted to."""
    names = encode(list(getattr(encoder, "feature_names_in_", [])))
    return {"n_features_in": encoder.n_features_in_, "names_in": names}


def restore_names(encoder, values: dict) -> None:
    """Inverse of :func:`names_to_json`."""
    names, encoder.n_features_in_ = decode(values["names_in"]), int(values["n_features_in"])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its names of columns are not strings")
    if names:  # of strings only, as in scikit-learn
        encoder.feature_names_in_ = np.array(names, dtype=object)
