"""Caches of the kernel's own beside Forebay, in a virtual machine: see README.md."""
