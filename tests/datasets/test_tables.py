import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from vips.datasets import load_adult, load_diabetes_readmission, make_sparse_binary
from vips.preprocessing import TableEncoder


def load_or_skip(loader):
    try:
        return loader()
    except FileNotFoundError as missing:
        pytest.skip(str(missing).splitlines()[0])


@pytest.mark.parametrize(
    ("loader", "file"), [(load_adult, "adult.test.gz"), (load_diabetes_readmission, "diabetes_outcome.npz")]
)
def test_missing_tables_say_where_they_were_looked_for(loader, file, tmp_path, monkeypatch):
    monkeypatch.setenv("VIPS_DATA_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"{file}[\s\S]*VIPS_DATA_HOME") as error:
        loader()
    assert str(tmp_path) in str(error.value)


def test_adult_without_pandas_says_what_to_install(tmp_path, monkeypatch):
    for name in ("adult.data.gz", "adult.test.gz"):
        (tmp_path / name).touch()
    monkeypatch.setenv("VIPS_DATA_HOME", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        load_adult()


def test_adult():
    pd = pytest.importorskip("pandas")
    adult = load_or_skip(load_adult)
    assert adult.data.shape == (48842, 14)
    assert list(adult.data.columns) == list(adult.columns)
    assert adult.target.dtype == bool
    assert adult.target.sum() == 11687
    assert adult.data["age"].iloc[[0, 32561]].tolist() == [39, 25]  # first rows of adult.data and of adult.test
    for name, declared in adult.columns.items():
        values = adult.data[name]
        if isinstance(declared, tuple):
            assert (values.min(), values.max()) == declared
        else:
            assert declared == sorted(set(values)), name  # the declared lists are complete
    encoder = TableEncoder(adult.columns)
    features = encoder.fit_transform(adult.data)
    assert features.shape == (48842, 108)
    assert np.linalg.norm(features, axis=1).max() <= 1.0 + 1e-12

    # the same features by pandas and by hand, up to the order of columns
    numeric = [name for name, declared in adult.columns.items() if isinstance(declared, tuple)]
    expected = pd.get_dummies(adult.data.drop(columns=numeric)).astype(float)
    for name in numeric:
        low, high = adult.columns[name]
        expected[name] = 2.0 * (adult.data[name] - low) / (high - low) - 1.0
    names = encoder.get_feature_names_out().tolist()
    assert sorted(names) == sorted(expected.columns)
    np.testing.assert_allclose(features, expected[names].to_numpy() / np.sqrt(14), rtol=1e-14, atol=1e-15)


def test_adult_columns_are_a_copy():
    pytest.importorskip("pandas")
    load_or_skip(load_adult).columns["sex"].append("unknown")
    assert load_adult().columns["sex"] == ["Female", "Male"]


def test_diabetes_readmission():
    diabetes = load_or_skip(load_diabetes_readmission)
    assert diabetes.data.shape == (69973, 1923) == (len(diabetes.target), len(diabetes.feature_names))
    assert diabetes.data.dtype == np.uint8
    assert set(np.unique(diabetes.data.data)) == {1}
    assert diabetes.target.dtype == bool
    assert diabetes.target.mean() == pytest.approx(0.0897, abs=2e-4)
    dead = [i for i, name in enumerate(diabetes.feature_names) if name == "discharge_disposition_id=11"]  # "expired"
    assert len(dead) == 1
    assert diabetes.data[:, dead].sum() == 0


@pytest.mark.slow
def test_sparse_binary_data_have_the_stated_shape_and_rate():
    made = make_sparse_binary(random_state=0)
    X, y = made.data, made.target
    assert X.shape == (12586, 4146)
    assert set(np.unique(X.data)) == {1}
    assert 36 < X.sum(axis=1).mean() < 44
    frequency = X.mean(axis=0)
    assert (frequency > 0.1).sum() < 100
    assert np.median(frequency) < 0.005
    assert abs(y.mean() - 0.14) < 4 * np.sqrt(0.14 * 0.86 / len(y))
    together = (X[:, np.argsort(-frequency)[:1000]].astype(float)).toarray()
    correlation = np.corrcoef(together.T)[np.triu_indices(1000, 1)]
    assert np.quantile(correlation, 0.999) > 0.1  # independent features: 3.1 / sqrt(12586) = 0.03

    train, test = slice(0, 9000), slice(9000, None)
    auc = [
        roc_auc_score(
            y[test],
            LogisticRegression(C=0.03, solver="liblinear")
            .fit(X[train].astype(float), labels)
            .decision_function(X[test].astype(float)),
        )
        for labels in (y[train], np.random.default_rng(0).permutation(y[train]))
    ]
    assert 0.8 < auc[0] < 0.85
    assert auc[1] < 0.6


def test_sparse_binary_labels_follow_the_known_coefficients():
    made = make_sparse_binary(20_000, 50, 0.3, n_active=5.0, random_state=1)
    chance = 1.0 / (1.0 + np.exp(-(made.data @ made.coef + made.intercept)))
    assert chance.mean() == pytest.approx(0.3, abs=1e-9)
    z = (made.target - chance) / np.sqrt(chance * (1.0 - chance))
    weighted = made.data.T @ z / np.sqrt(made.data.sum(axis=0))
    assert np.abs(weighted).max() < 4.5  # calibrated for every feature
    again = make_sparse_binary(20_000, 50, 0.3, n_active=5.0, random_state=1)
    assert (again.data != made.data).nnz == 0
    np.testing.assert_array_equal(again.target, made.target)
    assert make_sparse_binary(0, 30, n_active=3.0).data.shape == (0, 30)
    with pytest.raises(ValueError, match="positive_rate"):
        make_sparse_binary(positive_rate=1.0)
    with pytest.raises(ValueError, match="n_active"):
        make_sparse_binary(n_features=10)
