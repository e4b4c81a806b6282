"""The secret half of a stream: the state of its correlated noise, and who was in it.

A released total minus its noise is the exact total, and later noise is computed from earlier draws. So this state is as
secret as the records: it lives in this process, or in a file of its own that only its owner may read, and in no model, pickle
or checkpoint. It moves forward, durably, before anything is released. In the file lies also the release that it moved forward
for: a process that is killed between the two completes that release at the next start, and never draws again for the same
batch.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vips._support.file_locks import one_writer
from vips._support.files import partials_of
from vips.core.mechanism.secret_bits import secret_bytes
from vips.exceptions import StreamError
from vips.persistence.archive import restored_from, write_archive

__all__ = ["Register", "Secret", "SecretFile", "SecretMemory"]

_KIND = "stream secret"
_DIGEST = 16  # bytes


@dataclass
class Register:
    """In how many batches each person was, by a keyed hash of the id."""

    key: bytes = field(default_factory=lambda: secret_bytes(32))
    counts: dict[bytes, int] = field(default_factory=dict)

    def admitted(self, ids: Iterable[bytes], most: int) -> tuple[np.ndarray, Register]:
        """Which of these different ids were in fewer than ``most`` batches, and the register in which they were in one more."""
        digests = [hashlib.blake2b(identifier, digest_size=_DIGEST, key=self.key).digest() for identifier in ids]
        is_in = np.array([self.counts.get(digest, 0) < most for digest in digests], dtype=bool)
        more = {digest: self.counts.get(digest, 0) + 1 for digest, one in zip(digests, is_in, strict=True) if one}
        return is_in, Register(self.key, self.counts | more)

    def to_arrays(self) -> dict[str, np.ndarray]:
        digests = np.frombuffer(b"".join(self.counts), np.uint8).reshape(-1, _DIGEST)
        counts = np.fromiter(self.counts.values(), np.int64, len(self.counts))
        return {"key": np.frombuffer(self.key, np.uint8), "digests": digests, "counts": counts}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Register:
        """Inverse of ``to_arrays``. Raises ValueError if the arrays are none of a register."""
        n = len(arrays["counts"])
        kinds = {"key": (np.uint8, (32,)), "digests": (np.uint8, (n, _DIGEST)), "counts": (np.int64, (n,))}
        for name, (dtype, shape) in kinds.items():
            if arrays[name].dtype != dtype or arrays[name].shape != shape:
                raise ValueError(f"the register's {name!r} is none")
        if (arrays["counts"] < 1).any():
            raise ValueError("the register has persons who were in no batch")
        digests = (bytes(digest) for digest in arrays["digests"])
        return cls(bytes(arrays["key"]), dict(zip(digests, arrays["counts"].tolist(), strict=True)))


@dataclass(frozen=True)
class Secret:
    """State after batch ``t``.

    Parameters
    ----------
    stream : str
        Name of the stream, in its checkpoint, too.
    t : int
        Batches so far.
    released : dict of str to ndarray
        R_t: about to be released, or released; with discrete noise in whole units of its lattice.
    buffers : dict of str to ndarray
        Of the noise, by block, shape (n_buffers, *block).
    register : Register
    header : dict
        What the stream is; public.
    """

    stream: str
    t: int
    released: dict[str, np.ndarray]
    buffers: dict[str, np.ndarray]
    register: Register
    header: dict

    def digest(self) -> str:
        """Hash of R_t, which is public once it is released."""
        hashed = hashlib.sha256()
        for name, value in sorted(self.released.items()):
            hashed.update(f"{name} {value.dtype.str} {value.shape} ".encode() + np.ascontiguousarray(value).tobytes())
        return hashed.hexdigest()

    def check(self, shapes: Mapping[str, tuple[int, ...]], n_buffers: int, dtype: type) -> None:
        """Raise ValueError unless these are the arrays of a stream with blocks of these shapes, and totals of this dtype."""
        expected = {
            "released": (self.released, dtype, shapes),
            "buffers": (self.buffers, np.float64, {name: (n_buffers, *shape) for name, shape in shapes.items()}),
        }
        for what, (arrays, of_type, wanted) in expected.items():
            if {name: array.shape for name, array in arrays.items()} != wanted:
                raise ValueError(f"its arrays {what!r} are not those of the model")
            if any(array.dtype != of_type or not np.isfinite(array).all() for array in arrays.values()):
                raise ValueError(f"its arrays {what!r} hold other numbers than those of a stream")


class SecretMemory:
    """Secrets of streams without a file, by the name of the stream. Another process, also a forked one, has none of them."""

    _all: dict[str, tuple[int, Secret]] = {}
    _locks: dict[str, threading.Lock] = {}

    def __init__(self, stream: str) -> None:
        self._stream = stream

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._locks.setdefault(self._stream, threading.Lock()):
            yield

    def read(self) -> Secret:
        process, secret = self._all.get(self._stream, (None, None))
        if secret is None or process != os.getpid():
            raise StreamError(
                "The state of this stream's noise is not in this process, and without it no batch can follow. With "
                "partial_fit(..., checkpoint=path) it is kept in a file from the first batch on. A new stream is a new "
                "model, whose budget counts anew."
            )
        return secret

    def write(self, secret: Secret) -> None:
        self._all[self._stream] = (os.getpid(), secret)

    def outlives_errors(self) -> bool:
        """No: a model whose first batch failed does not know its stream, of which nothing was released."""
        self._all.pop(self._stream, None)
        return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SecretMemory._locks.clear)  # a forked child has none of these secrets


class SecretFile:
    """A secret in ``NAME.secret`` beside the checkpoint NAME, with permissions for its owner only."""

    def __init__(self, checkpoint: str | os.PathLike) -> None:
        self.checkpoint = Path(os.path.realpath(checkpoint))
        self.path = self.checkpoint.with_name(f"{self.checkpoint.name}.secret")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One batch at a time, over all threads and processes. Another one that is at work is an error."""
        instead = "call partial_fit without `checkpoint`: the stream then ends with its process"
        with one_writer(self.checkpoint, "A stream with a checkpoint", instead, StreamError):
            for left in partials_of(self.path):
                left.unlink(missing_ok=True)
            yield

    def exists(self) -> bool:
        return self.path.exists()

    def outlives_errors(self) -> bool:
        """Whether a secret is in place: then the next call completes its release."""
        return self.exists()

    def read(self) -> Secret:
        try:
            mode = os.stat(self.path).st_mode
            secret = restored_from(self.path, {_KIND: _secret_of})
        except FileNotFoundError:
            raise StreamError(
                f"{self.path} is missing: it held the state of the stream's noise, without which no batch can follow. A new "
                "stream needs another checkpoint, and its budget counts anew."
            ) from None
        except ValueError as error:
            raise StreamError(f"{error} It was not touched.") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise StreamError(
                f"Others than the owner may read {self.path}, which is as secret as the records. If nobody has, run chmod 600."
            )
        return secret

    def write(self, secret: Secret) -> None:
        """Durably; the file before is replaced as a whole."""
        parts = {"buffers": secret.buffers, "released": secret.released, "register": secret.register.to_arrays()}
        arrays = {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}
        header = {"stream": secret.stream, "t": secret.t, "public": secret.header}
        write_archive(self.path, _KIND, header, arrays, mode=0o600)


def _secret_of(header: dict, arrays: Mapping[str, np.ndarray]) -> Secret:
    """What a file holds. Raises if it is of another kind."""
    groups: dict[str, dict] = {"buffers": {}, "released": {}, "register": {}}
    for name, value in arrays.items():
        part, _, field = name.partition("/")
        groups[part][field] = value
    register, (stream, t, public) = Register.from_arrays(groups["register"]), map(header.get, ("stream", "t", "public"))
    names = {"model", "parameters", "plan", "n_features", "unit", "run", "register", "searched"}
    if not (isinstance(stream, str) and type(t) is int and t >= 1 and set(public) == names):
        raise ValueError("its header is not that of a stream")
    return Secret(stream, t, groups["released"], groups["buffers"], register, public)
