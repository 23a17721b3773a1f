"""The papers' figures from our models: numbers, pictures and one page."""
