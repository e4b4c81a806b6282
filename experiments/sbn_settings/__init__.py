"""How the defaults of sigmoid belief networks were chosen: on training images of MNIST alone, one default changed at a time."""
