"""Binary vectors from binary hidden units: sigmoid belief networks."""
