"""Many prompts from a file, answered one by one by this process or by Ray actors on several machines."""
