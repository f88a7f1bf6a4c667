"""Random programs and damaged ones, for runs of any length: ``python -m tests.fuzz.programs`` and ``.mutate``."""
