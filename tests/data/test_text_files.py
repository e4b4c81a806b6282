"""Folders of texts in other encodings: a word that cannot be read is left out, and no piece of it becomes a word."""

import pytest

from vips.data import TextFiles

WORDS = "J\xfcrgen sails home"


@pytest.fixture
def folder(tmp_path):
    for i, encoding in enumerate(["latin-1", "utf-8", "utf-8-sig", "utf-16"]):
        (tmp_path / f"{i}.txt").write_bytes(WORDS.encode(encoding))
    return tmp_path


def documents(source):
    return list(source.partition(0).open().X)


def test_a_mark_says_the_encoding_of_its_file_and_an_encoding_can_be_declared(folder):
    assert documents(TextFiles(folder)) == ["sails home", WORDS, WORDS, WORDS]
    assert documents(TextFiles(folder, encoding="latin-1"))[0] == WORDS


@pytest.mark.parametrize(
    "encoding", ["none", "idna", "rot13", "unicode_escape", "raw_unicode_escape", "punycode", "undefined"]
)
def test_what_is_no_encoding_of_texts_is_refused(folder, encoding):
    with pytest.raises(ValueError, match="latin-1"):
        TextFiles(folder, encoding=encoding)
