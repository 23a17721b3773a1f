"""Single kernels on arrays, under any engine: the command line's `kvdrive kernel` and the tests."""
