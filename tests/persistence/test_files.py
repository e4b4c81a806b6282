"""How files are replaced: whole, with their permissions, also by several writers and on strange file systems."""

import os
import stat
from contextlib import suppress

import numpy as np
import pytest

import vips
from vips import LatentDirichletAllocation, PrivacyLedger
from vips._support.files import whole_file
from vips.persistence.archive import read_archive, write_archive

COUNTS = np.random.default_rng(0).integers(0, 3, (20, 4))
posix = pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")


def model(n_components=2):
    return LatentDirichletAllocation(n_components, vocabulary=4, random_state=0).fit(COUNTS)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@posix
@pytest.mark.parametrize("bits", [0o600, 0o640, 0o444, 0o664])
def test_a_replaced_file_keeps_its_permissions(tmp_path, bits):
    path = tmp_path / "m.vips"
    model().save(path)
    path.chmod(bits)
    model(3).save(path)
    assert mode(path) == bits
    assert vips.load(path).n_components == 3
    with whole_file(path) as file:  # nobody else can read a private file while it is written
        file.write(b"new")
        assert [mode(member) for member in tmp_path.iterdir()] == [bits, bits]


@posix
def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        model().save(tmp_path / "m.vips")
    finally:
        os.umask(before)
    assert mode(tmp_path / "m.vips") == 0o640


@posix
def test_a_group_that_cannot_be_kept_gets_nothing(tmp_path, monkeypatch):
    path = tmp_path / "m.vips"
    path.write_bytes(b"old")
    path.chmod(0o664)

    def fchown(descriptor, user, group):
        if group != -1:
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", fchown)
    with whole_file(path) as file:
        file.write(b"new")
    assert mode(path) == 0o604


@posix
def test_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "m.vips")
    for n_components in (2, 3):  # the link points nowhere at first
        model(n_components).save(tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert vips.load(tmp_path / "real" / "m.vips").n_components == n_components
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "real"]
    assert [file.name for file in (tmp_path / "real").iterdir()] == ["m.vips"]


def test_a_folder_that_cannot_be_synced_is_no_failure(tmp_path, monkeypatch):
    fsync = os.fsync

    def refusing(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refusing)
    model().save(tmp_path / "m.vips")
    assert vips.load(tmp_path / "m.vips").n_components == 2
    PrivacyLedger(tmp_path / "a.ledger", 1.0, 1e-5, "letters")


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "m.vips"
    path.write_bytes(b"old")

    def fails():
        with whole_file(path) as file:
            file.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@posix
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_several_writers_of_one_path_all_succeed(tmp_path):
    """A reader meanwhile sees the whole file of one of them."""
    path, writers, seen = tmp_path / "m.vips", [], set()
    write_archive(path, "model", {"writer": 0}, {"a": np.zeros(1000)})
    for number in (1, 2):
        writers.append(os.fork())
        if writers[-1] == 0:
            with suppress(BaseException):
                for _ in range(50):
                    write_archive(path, "model", {"writer": number}, {"a": np.full(1000, number)})
                os._exit(0)
            os._exit(1)
    ended = {}
    while len(ended) < 2:
        header, arrays = read_archive(path, "model")
        assert (arrays["a"] == header["writer"]).all()
        seen.add(header["writer"])
        ended |= {
            writer: status
            for writer, status in (os.waitpid(w, os.WNOHANG) for w in writers if w not in ended)
            if writer
        }
    assert set(ended.values()) == {0}
    assert seen <= {0, 1, 2}
    assert read_archive(path, "model")[0]["writer"] in (1, 2)
    assert list(tmp_path.iterdir()) == [path]
