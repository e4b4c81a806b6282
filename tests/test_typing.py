"""What type checkers know: `fit` returns the class it was called on, and the package declares that it is typed."""

from __future__ import annotations

import inspect
from importlib.resources import files
from typing import Self, get_type_hints

import pytest

import vips
from vips import models, preprocessing

CLASSES = [
    getattr(part, name)
    for part in (models, preprocessing)
    for name in part.__all__
    if inspect.isclass(getattr(part, name)) and hasattr(getattr(part, name), "fit")
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_fit_returns_its_own_class(kind):
    assert len(CLASSES) >= 10
    assert get_type_hints(kind.fit)["return"] is Self


def test_the_package_is_typed():
    assert files(vips).joinpath("py.typed").is_file()
    assert files(vips).joinpath("__init__.pyi").is_file()
