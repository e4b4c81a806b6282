"""Models, one folder per family, with the same file names: contract, statistics, kernels, posterior, denoising, parts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
