"""Weights on flash: a file of bundles, its reader, and models whose experts are read when a token needs them."""
