"""What every engine passes. Only `engines` knows which engines there are, and how to open and inspect one."""
