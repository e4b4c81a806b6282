"""How the defaults of LDA were chosen: one change at a time, on articles that are neither fitted nor the final held-out set.

Fitted: Wikipedia articles 0 to 116,000. Scored: articles 116,000 to 118,000. The last 2,000 articles, on which
``lda_wikipedia`` reports, are never read.
"""
