"""Everything about a mixed index: relevance, search, checks, repairs, their comparison, and shipping."""
