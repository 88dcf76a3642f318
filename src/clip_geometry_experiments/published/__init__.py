"""Published numbers, and which of our result rows stand beside them."""
