"""What is done to the sum of a step: sampling, clipping, noise, and their release."""
