"""Weights that are all on flash: each layer is read from the checkpoint's own files while the one before computes."""
