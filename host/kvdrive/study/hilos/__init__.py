"""HILOS (exact attention near storage, ASPLOS 2026)."""
