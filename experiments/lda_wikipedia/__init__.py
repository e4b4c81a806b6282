"""Figures 2 and 3 of the paper on 118,000 Wikipedia articles, K = 50, with 2,000 further articles held out.

Fitted: the first 118,000 articles. Held out: the last 2,000, never used to choose anything. The default clip, schedule and
view of noisy counts were chosen on articles 116,000 to 118,000 with the first 116,000 fitted (docs/lda.md).
"""
