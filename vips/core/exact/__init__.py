"""Threads, matrix products, registers: what kernels are made of."""
