"""The command ``tilewise``: it parses, calls, and prints; what it prints is worked out in ``bench``."""
