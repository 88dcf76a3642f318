"""How far labeled rows form clusters: silhouettes, cosines within and between types, neural collapse."""
