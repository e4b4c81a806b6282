"""Figure 7 of the paper on MNIST (pixel above 0), and the same model at settings of its own. Measured on hidden pixels.

Fitted: the 60,000 training images. Scored: test images, which chose nothing; defaults were chosen among the training images
(``experiments/sbn_settings``). A random half of every test image is hidden, the network predicts it from the other half.
The paper's own measure, the share of *observed* pixels that are reconstructed, is given beside it, for comparison only: it
can be had without learning (the 3×3 tiles of ``tiles.py`` do well with no data, the identity is perfect).
"""
