"""Copies of records on disk are for their owner only, whatever the umask, also while they are written."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest
import scipy.sparse as sp

from vips.data import Sequences, regroup, write_sequences
from vips.data import _regroup as regroup_module

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
N = 40
ROWS = np.random.default_rng(0).integers(0, 3, (N, 4)).astype(float)
SEQUENCES = Sequences.from_list([np.arange(3.0)] * N)


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder):
    """Permissions of all folders, and of all files, below a folder."""
    inside = list(folder.rglob("*"))
    folders = {stat.S_IMODE(path.stat().st_mode) for path in inside if path.is_dir()}
    return folders, {stat.S_IMODE(path.stat().st_mode) for path in inside if path.is_file()}


@pytest.mark.parametrize("kind", ["rows", "sparse", "sequences"])
def test_regrouped_records(tmp_path, monkeypatch, kind):
    X = {"rows": lambda: ROWS, "sparse": lambda: sp.csr_array(ROWS)}.get(
        kind, lambda: write_sequences(SEQUENCES, tmp_path / "s")
    )()
    seen, write = [], regroup_module.write_grouped

    def looking(arrays, folder):
        write(arrays, folder)
        seen.append(modes(tmp_path))

    monkeypatch.setattr(regroup_module, "write_grouped", looking)
    regroup(X, by=np.arange(N) % 7, to=tmp_path / "persons", n_partitions=2)
    assert seen == [({0o700}, {0o600})] * 2
    assert modes(tmp_path) == ({0o700}, {0o600})


def test_written_sequences(tmp_path):
    seen = []

    def parts():
        for _ in range(3):
            yield Sequences.from_list([np.zeros(3)] * 20_000)  # a part of files for each
            seen.append(modes(tmp_path))

    write_sequences(parts(), to=tmp_path / "visits")
    assert seen[-1] == ({0o700}, {0o600})
    assert modes(tmp_path) == ({0o700}, {0o600})
