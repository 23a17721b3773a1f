"""The papers: claims, figures and models. Nothing else of the package imports this folder but the command line."""
