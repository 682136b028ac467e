"""How each operator is computed with torch: kernels, their registry and their helpers."""
