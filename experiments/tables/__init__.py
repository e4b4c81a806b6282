"""Tables: one release of all pairs of columns, and what follows from it."""
