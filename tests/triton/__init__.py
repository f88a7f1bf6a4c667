"""Kernels in Triton's language, the script that compiles them, and what their results must be."""
