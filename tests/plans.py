"""Plans that several files of tests use."""

from dataclasses import replace

from vips import PrivacyPlan

REPLACED = PrivacyPlan(noise_multiplier=8.0, n_steps=3, clip_norm=1.5, sampling="full", relation="replace_one")


def every(n_steps, **arguments):
    """An ordinary fit of so many full batches."""
    return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=n_steps, **arguments)


def entry_of(text):
    """What a report says about an entry of a ledger, each of them this text."""
    return dict.fromkeys(("dataset", "run", "purpose"), text)


def with_release(report, **changes):
    """The report with another last release."""
    return replace(report, releases=(*report.releases[:-1], replace(report.releases[-1], **changes)))
