"""The room that carries the guarantee: sums, clip, noise, charge, account. It imports nothing else of vips but ``_support``."""
