"""What a GPU answers, recorded once and kept, so that the emulator can be held to it without one."""
