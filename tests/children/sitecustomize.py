"""Bits that a name decides. Python runs this file in every process that a test starts: vips then draws those of the test.

(tests/known_bits.py sets PYTHONPATH and VIPS_TESTS_NAME.)
"""

import hashlib
import itertools
import os
import sys
import weakref
from importlib.machinery import PathFinder

NAME = "VIPS_TESTS_NAME"


class KnownBits:
    """Bytes that a name decides. No two calls, threads or forked processes get the same ones."""

    _alive = weakref.WeakSet()

    def __init__(self, name):
        self._name, self._calls = name.encode("utf-8", "surrogatepass"), itertools.count()
        self._alive.add(self)

    def __call__(self, n_bytes):
        return hashlib.shake_256(b"%s\0%d" % (self._name, next(self._calls))).digest(n_bytes)

    @classmethod
    def before_fork(cls):
        for bits in list(cls._alive):
            bits.fork = next(bits._calls)

    @classmethod
    def in_forked_child(cls):
        for bits in list(cls._alive):
            bits._name += b"\0fork %d" % bits.fork


class Finder:
    """Replaces the source of secret bits once its module has been loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target) if name == "vips.core.mechanism.secret_bits" else None
        if spec is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                module.secret_bytes = KnownBits(f"{os.environ[NAME]}, a child")

            spec.loader.exec_module = exec_module
        return spec


os.register_at_fork(before=KnownBits.before_fork, after_in_child=KnownBits.in_forked_child)
if NAME in os.environ:
    sys.meta_path.insert(0, Finder)
