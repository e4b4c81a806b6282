"""Sigmoid belief networks: MNIST."""
