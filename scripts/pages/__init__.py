"""Generated parts of the documentation: `python -m pages` writes all of them, `--check` says which are not current."""
