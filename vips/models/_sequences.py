"""What all models of sequences share."""

from vips.models.markov.contract import SequenceModel

__all__ = ["SequenceModel"]
