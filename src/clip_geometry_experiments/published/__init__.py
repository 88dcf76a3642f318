"""Published numbers, and the result rows of ours that they are compared with."""
