"""Every option of a run, once, and what goes with what. `run` has the options, `table` what they need of each other."""
