"""The emulator beside other compilers and interpreters, as they are installed: ``make test-peers``."""
