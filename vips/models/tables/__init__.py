"""Tables of declared columns: all pairs of columns released at once, and what follows from them."""
