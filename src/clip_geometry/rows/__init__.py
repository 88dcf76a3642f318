"""What every function does with matrices first: check them, and walk through their rows, in memory or not."""
