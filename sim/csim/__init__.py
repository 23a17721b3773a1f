"""C simulation of the kernels: compiles each kernel's testbench with g++ and compares it with the golden model."""
