"""LLVM text: written a line at a time, or as whole functions of the run-time support."""
