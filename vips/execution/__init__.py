"""Who computes the sum of a step, partition by partition, and how shares are added."""
