"""Invalid settings and columns are refused, also without a single record."""

import datetime

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from vips.preprocessing import TableEncoder

DAYS = datetime.date(2020, 1, 1), datetime.date(2020, 12, 31)


@pytest.mark.parametrize(
    ("transformer", "table", "error", "message"),
    [
        (TableEncoder({"a": (0, 1)}), pd.DataFrame({"b": [1.0]}), ValueError, "'a' is declared, but X has 0"),
        (TableEncoder({"a": (0, 1)}), pd.DataFrame([[1, 1]], columns=["a", "a"]), ValueError, "2 columns of that name"),
        (TableEncoder({"a": (0, 1)}), pd.DataFrame({"a": [pd.Period("2020")]}), TypeError, "dtype is period"),
        (TableEncoder({"a": (0, 1)}), pd.DataFrame({"a": [pd.Timestamp(0)]}), TypeError, "write two dates"),
        (TableEncoder({"a": DAYS}), pd.DataFrame({"a": [1.0]}), TypeError, "write two numbers"),
        (TableEncoder({"a": ["x"]}), pd.DataFrame({"a": [pd.Timestamp(0)]}), TypeError, "convert it to strings"),
        (TableEncoder({"a": [1, 2]}), pd.DataFrame({"a": ["1"]}), TypeError, "Declare strings, such as '1'"),
        (TableEncoder({"a": (0, 1)}), np.ones((2, 1)), TypeError, "Pass a data frame"),
        (TableEncoder([(0, 1)]), [[1.0]], TypeError, "numpy.asarray"),
        (TableEncoder([(0, 1)]), sp.csr_array(np.eye(2)), TypeError, "Sparse input"),
        (TableEncoder([(0, 1)]), np.array([[b"1"]]), TypeError, r"dtype is \|S1.*e\.g\. X\.astype\(float\)"),
        (TableEncoder([(0, 1)]), np.array([[1j]]), ValueError, "Complex data not supported"),
        (TableEncoder([(0, 1)]), np.ones(3), ValueError, "2D"),
        (TableEncoder([(0, 1)]), np.ones((2, 2)), ValueError, "1 columns are declared, but X has 2"),
        (TableEncoder([(1, 1)]), np.ones((2, 1)), ValueError, "low < high"),
        (TableEncoder({"a": (0, np.inf)}), pd.DataFrame({"a": [1]}), ValueError, "'a' must be finite"),
        (TableEncoder({"a": 3}), pd.DataFrame({"a": [1]}), TypeError, r"write \(low, high\) or a list"),
        (TableEncoder({}), pd.DataFrame({"a": [1]}), TypeError, "`columns` must map"),
        (TableEncoder([]), np.ones((2, 0)), TypeError, "`columns` must map"),
        (TableEncoder([["a", "a"]]), np.array([["a"]]), ValueError, "twice"),
        (TableEncoder([[1, True]]), np.array([["a"]]), ValueError, "twice"),
        (TableEncoder([["a", None]]), np.array([["a"]]), ValueError, "Missing values have no"),
        (TableEncoder([["a", np.nan]]), np.array([["a"]]), ValueError, "Missing values have no"),
        (TableEncoder([[]]), np.array([["a"]]), TypeError, "at least one"),
        (TableEncoder(["abc"]), np.array([["a"]]), TypeError, "Column 0 is declared as 'abc'"),
        (TableEncoder("abc"), np.array([["a"]]), TypeError, "`columns` must map"),
        (TableEncoder({"a": ["1"]}), pd.DataFrame({"a": [1]}), TypeError, "no value would match"),
        (TableEncoder({"a": ("x", "y")}), pd.DataFrame({"a": ["x"]}), TypeError, "tuple of two numbers or dates"),
        (TableEncoder({"a": (0, 1, 2)}), pd.DataFrame({"a": ["x"]}), TypeError, "tuple of two numbers or dates"),
        (TableEncoder((0, 1)), np.ones((2, 1)), TypeError, "`columns` must map"),
    ],
)
def test_errors_come_from_public_facts_and_say_what_to_write(transformer, table, error, message):
    with pytest.raises(error, match=message):
        transformer.fit(table)
    if not isinstance(table, list):
        with pytest.raises(error, match=message):
            transformer.fit(table[:0])  # the same without a single record


def test_transform_checks_the_columns_again():
    encoder = TableEncoder({"a": (0, 1)}).fit(pd.DataFrame({"a": [1.0]}))
    with pytest.raises(TypeError, match="write two dates"):
        encoder.transform(pd.DataFrame({"a": [pd.Timestamp(0)]}))
    with pytest.raises(ValueError, match="0 columns of that name"):
        encoder.transform(pd.DataFrame({"b": [1.0]}))
    with pytest.raises(ValueError, match="2 features"):
        TableEncoder([(0, 1)]).fit(np.ones((1, 1))).transform(np.ones((1, 2)))
