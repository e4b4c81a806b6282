"""What predictions need besides the model, such as names of columns: part of the file that ``fit --save`` writes."""

from __future__ import annotations

from dataclasses import fields
from itertools import chain

from vips._commands.files import meaning_of
from vips._commands.reading import Reading

__all__ = ["checked_needs"]

# By kind of model: the method that predicts, and for each setting whether it is a name or a list of names. Texts may lack both.
_METHODS = {"logistic": "predict_proba", "topics": "transform", "pathways": "predict"}
_SETTINGS = {
    "logistic": {"columns": list, "classes": list, "declared": list},
    "topics": {"text": str, "unit": str},
    "pathways": {"unit": str, "event": str, "order": str, "catalogue": list},
}


def checked_needs(needs: object, model: object, path: str) -> tuple[dict, Reading]:
    """What a file holds, if it fits to its model; and how the fitted table was written. A forged file raises ValueError."""
    if needs is None:
        raise ValueError(
            f"{path} was saved from Python, without the names of columns that `predict` needs: write one with `fit --save`, or "
            f"use vips.load({path!r}) in Python."
        )
    kind = needs.get("model") if isinstance(needs, dict) else None
    settings = _SETTINGS.get(kind) if isinstance(kind, str) else None
    if settings is None or set(needs) != {"model", "reading", *settings} or not hasattr(model, _METHODS[kind]):
        raise ValueError(f"{path} was not written by `fit --save`: it names another kind of model.")
    for name, expected in settings.items():
        value = needs[name]
        is_right = isinstance(value, expected) or (kind == "topics" and value is None)
        if not is_right or (expected is list and not all(isinstance(text, str) for text in value)):
            raise ValueError(f"{path} was not written by `fit --save`: its {name!r} is no name, or no list of names.")
    if kind == "logistic":
        if len(needs["classes"]) != 2 or len(needs["columns"]) != len(needs["declared"]):
            raise ValueError(
                f"{path} was not written by `fit --save`: it does not name two classes, and what columns are."
            )
        for name, what in zip(needs["columns"], needs["declared"], strict=True):
            meaning_of(name, what)
    return needs, _checked_reading(needs["reading"], path)


def _checked_reading(values: object, path: str) -> Reading:
    if isinstance(values, dict) and set(values) == {field.name for field in fields(Reading)}:
        lists = {name: values[name] for name in ("date_formats", "missing")}
        texts = [value for name, value in values.items() if name not in lists]
        are_lists = all(isinstance(words, list | tuple) for words in lists.values())
        if are_lists and all(isinstance(text, str) for text in chain(texts, *lists.values())):
            return Reading(**values | {name: tuple(words) for name, words in lists.items()})
    raise ValueError(f"{path} was not written by `fit --save`: it does not say how the table was written.")
