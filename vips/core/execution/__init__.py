"""Where a sum is computed: partitions, the tree of their sums, threads of this process."""
