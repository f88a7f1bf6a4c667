"""The counted and the traced build: what a launch does, in figures."""
