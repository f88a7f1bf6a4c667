"""The checked build: what is wrong with a launch."""
