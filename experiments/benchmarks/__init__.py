"""Speed against peers on the same work."""
