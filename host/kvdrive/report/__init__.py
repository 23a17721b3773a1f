"""The report of a generation: numbers, a table, plots and a timeline."""
