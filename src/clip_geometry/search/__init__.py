"""Everything about a mixed index: relevance, two-sided search, checks, repairs, their comparison, and shipping."""
