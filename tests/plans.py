"""Plans that several files of tests use."""

from vips import PrivacyPlan

REPLACED = PrivacyPlan(noise_multiplier=8.0, n_steps=3, clip_norm=1.5, sampling="full", relation="replace_one")
