"""The pure middle: facts in, moves out. No Trio, no clock, no randomness, no input or output."""
