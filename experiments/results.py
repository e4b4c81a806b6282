"""Where experiments leave their results, and how they are written: whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

__all__ = ["results_folder", "write_json", "write_text"]


def results_folder(name: str) -> Path:
    """``experiments/results/<name>``, made if need be."""
    folder = Path(__file__).parent / "results" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_text(path: Path, text: str) -> None:
    """Write beside and rename, so that a reader never sees half a file."""
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def write_json(path: Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
