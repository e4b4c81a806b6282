"""Plans that several files of tests use."""

from vips import PrivacyPlan

FIXED = PrivacyPlan(
    noise_multiplier=8.0,
    n_steps=5,
    clip_norm=1.5,
    sampling="fixed",
    relation="replace_one",
    batch_size=20,
    n_records=60,
)
