"""Machine code in memory, threads that run it, and words for what went wrong."""
