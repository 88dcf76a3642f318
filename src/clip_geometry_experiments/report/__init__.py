"""Reports of runs: pages with sections, findings and figures, rendered from records."""
