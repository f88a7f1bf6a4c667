"""The run-time support that compiled kernels call."""
