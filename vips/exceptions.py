"""Every error and warning of vips that somebody may want to catch. Tracebacks name them as they are imported: ``vips.X``."""

__all__ = [
    "CheckpointError",
    "InvalidRecordError",
    "LedgerError",
    "PartitionError",
    "PrivacyBudgetError",
    "PrivacyWarning",
    "SourceError",
]


class InvalidRecordError(ValueError):
    """A record is not valid, and the fit was told to stop at one, or is not private."""

    __module__ = "vips"


class PartitionError(RuntimeError):
    """A worker could not compute its share."""

    __module__ = "vips"


class SourceError(ValueError):
    """A part of the data cannot be read or is not what was declared. The message names the part and the public fact."""

    __module__ = "vips"


class CheckpointError(ValueError):
    """A checkpoint cannot be continued by this fit. Nothing was changed."""

    __module__ = "vips"


class LedgerError(ValueError):
    """A ledger refuses, or its file is damaged or foreign. Nothing was changed."""

    __module__ = "vips"


class PrivacyBudgetError(LedgerError):
    """The budget has no room for what was asked."""

    __module__ = "vips"


class PrivacyWarning(UserWarning):
    """Something about a guarantee that a user should know; it never depends on a record."""

    __module__ = "vips"
