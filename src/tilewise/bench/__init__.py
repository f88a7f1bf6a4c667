"""What the command line shows, worked out: trials, the demo, the doctor, measurements."""
