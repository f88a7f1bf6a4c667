"""CUDA C++ → PTX → machine code, through NVRTC alone; and the cache that remembers it."""
