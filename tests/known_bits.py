"""A plugin of pytest: every test draws bits that its own name decides, so that no test fails by chance.

It replaces :func:`vips.core.mechanism.secret_bits.secret_bytes` in this process, and in Python processes that a test starts
(``tests/children/sitecustomize.py``). Fixtures that several tests share, and functions that are :func:`cached`, draw bits of
their own names. Bits are those of the operating system in tests that are marked ``fresh_bits``, and in all tests if the
environment of pytest has ``VIPS_TESTS_DRAW=afresh`` (``make test-all``).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Workers of pytest share the processors: threads of BLAS would only wait for each other. Read when NumPy is imported, below.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tests.children.sitecustomize import NAME, KnownBits
from vips.core.mechanism import secret_bits as _secret_bits

__all__ = ["AFRESH", "bits_of", "cached"]

_CHILDREN = str(Path(__file__).parent / "children")
AFRESH = os.environ.get("VIPS_TESTS_DRAW") == "afresh"
_OF_THE_SYSTEM = _secret_bits.secret_bytes


@contextmanager
def bits_of(name: str | None) -> Iterator[None]:
    """Within the block the package draws the bits of this name; those of the operating system for None."""
    before = _secret_bits.secret_bytes, os.environ.get(NAME)
    _draw(*((_OF_THE_SYSTEM, None) if name is None or AFRESH else (KnownBits(name), name)))
    try:
        yield
    finally:
        _draw(*before)


def cached(function: Callable) -> Callable:
    """``functools.cache`` for helpers that draw: the result is the same whichever test asks first."""

    @functools.cache
    def with_own_bits(*arguments, **named):
        with bits_of(f"{function.__module__}.{function.__qualname__}{arguments}{named}"):
            return function(*arguments, **named)

    return functools.wraps(function)(with_own_bits)


def _draw(source: Callable[[int], bytes], name: str | None) -> None:
    _secret_bits.secret_bytes = source
    if name is None:
        os.environ.pop(NAME, None)
    else:
        os.environ[NAME] = name


def pytest_configure() -> None:
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder != _CHILDREN]
    os.environ["PYTHONPATH"] = os.pathsep.join([_CHILDREN, *filter(None, folders)])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    with bits_of(None if item.get_closest_marker("fresh_bits") else item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> Iterator[object]:
    if request.scope == "function":
        return (yield)
    with bits_of(f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
        return (yield)
