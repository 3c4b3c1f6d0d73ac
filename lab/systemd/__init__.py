"""Debian's own units under a real systemd, in a virtual machine: see README.md."""
