"""Databases under Forebay on arm64, in a virtual machine: see README.md."""
