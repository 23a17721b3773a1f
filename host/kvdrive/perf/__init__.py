"""Rates of this machine and of hardware, sizes of models, the planner, and workloads whose device time is traced."""
