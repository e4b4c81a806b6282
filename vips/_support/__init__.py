"""What every room uses, and what knows none of them: files, checks of arguments, text for screens."""
