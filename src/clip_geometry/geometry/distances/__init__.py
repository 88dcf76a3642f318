"""How far rows lie apart: exactly, in blocks, also where float32 products cancel."""
