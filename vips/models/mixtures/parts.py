"""Latent classes as distributions by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from vips.models.mixtures.posterior import ClassPosterior
from vips.parts import Part

__all__ = ["class_parts"]


def class_parts(posterior: ClassPosterior, names: Sequence[str], categories: Sequence[Sequence]) -> list[Part]:
    """Shares of the classes, and a part for each column."""
    classes = [f"class {k}" for k in range(len(posterior.concentration))]
    parts = [Part("weights", posterior.weights, partial(_weight, classes), classes)]
    for name, listed, column in zip(names, categories, posterior.answers, strict=True):
        words = [str(each) for each in listed]
        parts.append(Part(f"answers: {name}", column, partial(_answer, name, words), words))
    return parts


def _weight(classes: list[str], index: tuple[int, ...]) -> str:
    return classes[index[-1]]


def _answer(name: str, words: list[str], index: tuple[int, ...]) -> str:
    return f"class {index[0]}: {name} = {words[index[1]]}"
