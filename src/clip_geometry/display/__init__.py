"""Numbers, tables, verdicts and the figure style, as text, HTML and LaTeX."""
