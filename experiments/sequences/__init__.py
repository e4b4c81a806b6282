"""Sequences: hidden Markov models of sentences and of pathways."""
