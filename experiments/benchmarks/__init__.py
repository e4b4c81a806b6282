"""Speed in comparison with other libraries on the same work."""
