"""Small fits for tests of the topics' page, with words that try to be markup or script."""

from tests.known_bits import cached
from tests.tools.comparison.report_cases import HOSTILE, PLAN
from vips import LatentDirichletAllocation
from vips.datasets import make_lda_corpus

WORDS = [
    *HOSTILE,
    "\ud800 unpaired",
    '\\"}</div></template><img src=x onerror=alert(3)>',
    "{{ 7 * 7 }}",
    "-->",
    "\u2028line",
    "x" * 60,
    *(f"word{i}" for i in range(49)),
]


@cached
def fitted(private=True, words=True):
    """Four topics over 60 words; without ``words`` these have no names."""
    documents = make_lda_corpus(n_documents=400, n_topics=4, n_words=len(WORDS), document_length=40, random_state=0)
    vocabulary = WORDS if words else len(WORDS)
    plan = PLAN if private else None
    seed = 0 if private else 1  # so that topics have to be matched
    return LatentDirichletAllocation(4, vocabulary=vocabulary, privacy=plan, random_state=seed).fit(documents.counts)
