"""Errors and warnings of vips that users may want to catch. Tracebacks show them as they are imported: ``vips.X``."""

__all__ = [
    "CheckpointError",
    "InvalidRecordError",
    "LedgerError",
    "PartitionError",
    "PrivacyBudgetError",
    "PrivacyWarning",
    "SourceError",
    "StreamError",
]


class InvalidRecordError(ValueError):
    """A record is invalid, and the fit is not private or has ``on_invalid="raise"``."""

    __module__ = "vips"


class PartitionError(RuntimeError):
    """A worker could not compute its share."""

    __module__ = "vips"


class SourceError(ValueError):
    """A part of the data cannot be read, or is not as declared. The message names the part and the public fact."""

    __module__ = "vips"


class CheckpointError(ValueError):
    """A checkpoint cannot be continued by this fit. Nothing was changed."""

    __module__ = "vips"


class StreamError(ValueError):
    """A stream cannot take a batch: its noise's state is lost, belongs to another stream, or is in use. Nothing was
    released."""

    __module__ = "vips"


class LedgerError(ValueError):
    """A ledger refuses a request, or its file is damaged or not a ledger. Nothing was changed."""

    __module__ = "vips"


class PrivacyBudgetError(LedgerError):
    """The rest of the budget is too small for the request."""

    __module__ = "vips"


class PrivacyWarning(UserWarning):
    """A fact about a privacy guarantee that users should know. It never depends on a record."""

    __module__ = "vips"
