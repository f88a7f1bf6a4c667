"""The counted, the traced and the recorded build: what a launch does, in figures and event by event."""
