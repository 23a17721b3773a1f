"""InstInfer (in-storage sparse attention, HPCA 2025)."""
