import numpy as np
import pytest
from sklearn.utils import Bunch

from vips.datasets import _images, load_digits_binary, load_mnist


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
    monkeypatch.setattr(_images, "fetch_openml", fetch)
    mnist = load_mnist(download=True)
    assert (asked["name"], asked["data_home"]) == ("mnist_784", tmp_path)
    assert (mnist.data == [False, True]).all()
    assert (mnist.test_data == [True, False]).all()
    assert set(mnist.target) == {3}
    assert set(mnist.test_target) == {8}
    assert (load_mnist(download=True, grey=True).test_data == [255, 0]).all()


def test_digits():
    digits = load_digits_binary()
    assert digits.data.shape == (1797, 64)
    assert digits.data.dtype == bool
    assert set(digits.target) == set(range(10))
    assert 0.3 < digits.data.mean() < 0.4
