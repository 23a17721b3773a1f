"""What a drive costs: workloads whose device time is traced."""
