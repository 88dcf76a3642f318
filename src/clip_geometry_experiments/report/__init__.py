"""Pages of runs: sections, findings and figures built from records."""
