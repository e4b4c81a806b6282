import numpy as np
import pytest
from sklearn.utils import Bunch

from experiments.datasets import load_adult, load_diabetes_readmission, load_docstrings, load_mnist, load_wikipedia
from experiments.datasets import mnist as mnist_module
from experiments.datasets.home import data_home
from vips.preprocessing import TableEncoder


@pytest.mark.slow
def test_docstrings_are_a_real_corpus_with_a_foreign_vocabulary():
    corpus = load_docstrings(packages=("sklearn",))
    assert corpus.counts.shape == (len(corpus.names), len(corpus.vocabulary))
    assert len(corpus.names) > 300
    assert len(corpus.vocabulary) > 1000
    assert (corpus.counts.sum(axis=1) >= 10).all()
    assert "regression" in corpus.vocabulary
    assert "hyperparameter" not in corpus.vocabulary  # the library's own words are not learnt
    fitted = next(i for i, name in enumerate(corpus.names) if name.endswith("LatentDirichletAllocation"))
    assert corpus.counts[[fitted]][:, [corpus.vocabulary.index("topic")]].sum() > 5
    with pytest.raises(ValueError, match="not installed"):
        load_docstrings(packages=("no_such_package",))


def test_missing_data_say_where_they_were_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("VIPS_DATA_HOME", str(tmp_path))
    assert data_home() == tmp_path
    with pytest.raises(FileNotFoundError, match=r"wiki_counts_00.npz[\s\S]*VIPS_DATA_HOME") as error:
        load_wikipedia(100)
    assert str(tmp_path) in str(error.value)


def test_wikipedia():
    try:
        corpus = load_wikipedia(100)
    except FileNotFoundError as missing:
        pytest.skip(str(missing).splitlines()[0])
    assert corpus.counts.shape == (100, 7702)
    assert len(corpus.vocabulary) == 7702
    assert corpus.counts.sum(axis=1).min() >= 50
    with pytest.raises(ValueError, match="n_documents"):
        load_wikipedia(0)


def test_missing_mnist_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("VIPS_DATA_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"mnist\.npz[\s\S]*OpenML[\s\S]*VIPS_DATA_HOME") as error:
        load_mnist()
    assert str(tmp_path) in str(error.value)


def test_mnist():
    try:
        mnist = load_mnist()
    except FileNotFoundError as missing:
        pytest.skip(str(missing).splitlines()[0])
    assert mnist.data.shape == (60_000, 784)
    assert mnist.test_data.shape == (10_000, 784)
    assert mnist.data.dtype == bool
    assert mnist.target[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test_target[:5].tolist() == [7, 2, 1, 0, 4]
    assert 0.18 < mnist.data.mean() < 0.2
    assert not mnist.data[:, [0, 27, 783]].any()  # corners


def test_mnist_from_openml(tmp_path, monkeypatch):
    grey = np.zeros((70_000, 2), np.int64)
    grey[:60_000, 1], grey[60_000:, 0] = 1, 255
    asked = {}

    def fetch(name, **arguments):
        asked.update(arguments, name=name)
        return Bunch(data=grey, target=np.array(["3"] * 60_000 + ["8"] * 10_000))

    monkeypatch.setenv("VIPS_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(mnist_module, "fetch_openml", fetch)
    mnist = load_mnist(download=True)
    assert (asked["name"], asked["data_home"]) == ("mnist_784", tmp_path)
    assert (mnist.data == [False, True]).all()
    assert (mnist.test_data == [True, False]).all()
    assert set(mnist.target) == {3}
    assert set(mnist.test_target) == {8}
    assert (load_mnist(download=True, grey=True).test_data == [255, 0]).all()


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
