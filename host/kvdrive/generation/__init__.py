"""Generation: prefill on the host, decode attention in a drive."""
