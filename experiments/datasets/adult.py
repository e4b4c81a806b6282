"""Adult: people of the 1994 census of the United States, and whether they earn more than 50,000 dollars."""

from __future__ import annotations

from copy import deepcopy

from sklearn.utils import Bunch

from experiments.datasets.adult_columns import COLUMNS, NAMES
from experiments.datasets.home import find_files

__all__ = ["load_adult"]

_HOW_TO_GET = (
    "It is the data set of B. Becker and R. Kohavi (1996), UCI Machine Learning Repository, doi:10.24432/C5XW20: files "
    "adult.data.gz and adult.test.gz, the two published text files compressed with gzip."
)


def load_adult() -> Bunch:
    """48,842 people with 14 attributes, and whether their income is above 50,000 dollars a year.

    The rows of ``adult.data`` (32,561) come first, then those of ``adult.test`` (16,281). Files are looked for in
    ``VIPS_DATA_HOME``; reading them needs pandas.

    Returns
    -------
    Bunch
        ``data``: data frame of shape (48842, 14), where "?" stands for a missing category; ``target``: (48842,) bool, true
        for 23.9 %; ``columns``: dict of the 14 columns' bounds and categories, as :class:`~vips.preprocessing.TableEncoder`
        takes them.

    Raises
    ------
    FileNotFoundError
        If a file is missing; the message names the folder.
    ImportError
        If pandas is not installed.

    Notes
    -----
    ``columns`` is written in the code. Some bounds (of ``fnlwgt``, ``capital-loss``) are the extremes of this published
    table: for private records, take bounds from another source.
    """
    files = find_files(["adult.data.gz", "adult.test.gz"], "Adult", _HOW_TO_GET)
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("load_adult() returns a data frame and needs pandas: pip install pandas.") from error
    parts = [
        pd.read_csv(
            path, header=None, names=list(NAMES), skipinitialspace=True, skiprows=skiprows, keep_default_na=False
        )
        for path, skiprows in zip(files, (0, 1), strict=True)  # adult.test begins with a comment line
    ]
    table = pd.concat(parts, ignore_index=True)
    target = table.pop("income").str.startswith(">50K").to_numpy(dtype=bool)
    return Bunch(data=table, target=target, columns=deepcopy(COLUMNS))
