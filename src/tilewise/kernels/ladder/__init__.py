"""The rungs of the ladder: lessons, from one thread to the hardware's limit. Each is a spec beside its source."""
