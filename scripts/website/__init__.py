"""The site of the pages, by mkdocs."""
