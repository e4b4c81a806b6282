"""Files of vips that somebody damages or edits."""

import copy
import io
import json
import zipfile

from vips.persistence.archive import read_archive, write_archive

OF_THE_FORMAT = "format", "version", "kind", "arrays"  # fields of a header that `write_archive` writes


def changed(values, rng, odd):
    """JSON with one value of another type or kind, of those in ``odd``, or without it."""
    values = holder = copy.deepcopy(values)
    while True:
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        inner = holder[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
            holder = inner
            continue
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(odd))
        return values


def flipped(whole, rng):
    """The bytes with some others, and sometimes without an end."""
    result = bytearray(whole)
    for _ in range(rng.choice([1, 1, 3, 20])):
        result[rng.randrange(len(whole))] = rng.randrange(256)
    return bytes(result[: rng.randrange(len(whole))]) if rng.random() < 0.2 else bytes(result)


def members_of(whole):
    """Names and contents of the files in a zip file of these bytes."""
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(members):
    """The bytes of a zip file of these names and contents."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def rewritten(path, **changes):
    """Rewrite a file with changes in its header, whatever they are."""
    members = members_of(path.read_bytes())
    header = json.loads(members["header.json"]) | changes
    path.write_bytes(zipped(members | {"header.json": json.dumps(header)}))


def edited(path, kind, edit, to=None, **settings):
    """Write the archive as vips writes it, after ``edit(header, arrays)`` has changed what they hold."""
    header, arrays = read_archive(path, kind)
    header, arrays = {name: header[name] for name in header if name not in OF_THE_FORMAT}, dict(arrays)
    edit(header, arrays)
    write_archive(to or path, kind, header, arrays, **settings)
