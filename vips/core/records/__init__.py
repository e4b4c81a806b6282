"""Records as a fit reads them: rows, who they are from, partitions, and what may be known of them beforehand."""
