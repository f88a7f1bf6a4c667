"""The production kernels: each a spec beside its source; and the copy that lays operands out for them."""

FAMILIES = ("exact32", "general", "mma", "simt", "vector", "wgmma")  # those that multiply
