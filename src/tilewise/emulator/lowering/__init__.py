"""A kernel → one LLVM function that runs a warp until it stops."""
