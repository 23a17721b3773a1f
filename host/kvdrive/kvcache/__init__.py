"""The KV cache as the host sees it: sessions on a drive, and the layer between them and a model's tensors."""
