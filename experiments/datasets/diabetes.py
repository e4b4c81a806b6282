"""Readmission to hospital of patients with diabetes, as a sparse binary table."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Bunch

from experiments.datasets.home import find_files

__all__ = ["load_diabetes_readmission"]

_HOW_TO_GET = (
    "It is made from the data set of J. Clore, K. Cios, J. DeShazo and B. Strack (2014), UCI Machine Learning Repository, "
    "doi:10.24432/C5230J: files diabetes_binary.npz (scipy.sparse CSR of 101,766 encounters and 1,923 binary features), "
    "diabetes_outcome.npz and diabetes_features.txt; data/README.md describes them."
)


def load_diabetes_readmission() -> Bunch:
    """First encounters of 69,973 patients, and whether they were readmitted within 30 days.

    One row per patient: the first encounter. Patients who died or were discharged to a hospice are left out. Files are looked
    for in ``VIPS_DATA_HOME``.

    Returns
    -------
    Bunch
        ``data``: CSR of shape (69973, 1923), uint8 zeros and ones, about 23 ones a row; ``target``: (69973,) bool, true for
        9.0 %; ``feature_names``: list of str.

    Raises
    ------
    FileNotFoundError
        If a file is missing; the message names the folder.

    Notes
    -----
    The features were chosen by looking at the encounters (those seen fewer than 10 times were dropped). The table is
    public; for private records, take the list of features from another source.
    """
    names = ["diabetes_binary.npz", "diabetes_outcome.npz", "diabetes_features.txt"]
    table, outcomes, features = find_files(names, "Diabetes 130-US hospitals", _HOW_TO_GET)
    with np.load(outcomes) as outcome:
        kept = outcome["first_encounter"] & ~outcome["died_or_hospice"]
        target = outcome["readmitted_30"][kept]
    data = sp.csr_array(sp.load_npz(table))[kept]
    return Bunch(data=data, target=target, feature_names=features.read_text(encoding="utf-8").splitlines())
