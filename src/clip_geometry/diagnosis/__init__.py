"""Is a mixed index broken, what repairs it, what does the repair cost, and how is it shipped."""
