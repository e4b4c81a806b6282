"""vips: private variational Bayes for conjugate-exponential models.

Public names are listed once, in ``__init__.pyi``; each is imported when it is first used.
"""

from importlib import metadata

import lazy_loader

try:
    __version__ = metadata.version("vips")
except metadata.PackageNotFoundError:  # read from a folder that was not installed
    __version__ = "0+unknown"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
