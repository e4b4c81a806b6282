"""Tools around fits: audits, comparisons, evaluations, plans and the shell. Nothing in the other rooms imports them."""
