"""Computes the sum of a step: executors that compute each partition's share, and the tree that adds shares."""
