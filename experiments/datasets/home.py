"""The folder of data files."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["data_home", "find_files"]

_CHECKOUT = Path(__file__).resolve().parents[2]


def data_home() -> Path:
    """The folder of data files: ``VIPS_DATA_HOME``, else ``../shared/data`` beside the checkout, else the user's cache."""
    if os.environ.get("VIPS_DATA_HOME"):
        return Path(os.environ["VIPS_DATA_HOME"]).expanduser()
    beside = _CHECKOUT.parent / "shared" / "data"
    if beside.is_dir():
        return beside
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "vips"


def find_files(names: list[str], dataset: str, how_to_get: str) -> list[Path]:
    """Paths of ``names`` in the data folder.

    Raises
    ------
    FileNotFoundError
        The message names the missing files, the folder, and how to get them.
    """
    home = data_home()
    missing = [name for name in names if not (home / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"The {dataset} data set is not here: looked in {home} for {', '.join(missing)}.\n{how_to_get}\n"
            "Put the files there, or set the environment variable VIPS_DATA_HOME to the folder that holds them."
        )
    return [home / name for name in names]
