"""What a generation leaves behind: numbers, a table, plots and a timeline."""
