"""The kernels of hls/ as software: objects and shared objects, compiled once for all who need them."""
