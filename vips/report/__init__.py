"""What was released, in words: reports, what totals say was not read, certificates."""
