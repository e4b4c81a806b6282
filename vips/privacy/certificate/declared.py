"""What a fit cannot know and people state. What is empty is shown as a line to be filled in by hand."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Declared"]

_LABELS = {
    "dataset": "Data set",
    "purpose": "Purpose",
    "model": "Model",
    "responsible": "Responsible for the processing",
    "chosen_by": "Chosen by",
    "reason": "Reasons",
}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Texts for the first page, in the order in which they are shown.

    Attributes
    ----------
    dataset, purpose, model, responsible, chosen_by, reason : str
    """

    dataset: str = ""
    purpose: str = ""
    model: str = ""
    responsible: str = ""
    chosen_by: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str):
                raise TypeError(f"`{field.name}` must be a text, got {type(value).__name__}.")

    def rows(self, *names: str) -> list[tuple[str, str]]:
        """Labels and texts of some fields; blanks count as empty."""
        texts = {name: getattr(self, name) for name in names}
        return [(_LABELS[name], text if text.strip() else "") for name, text in texts.items()]
