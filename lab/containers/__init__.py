"""Databases under Forebay in containers: see README.md."""
