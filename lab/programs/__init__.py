"""Programs that people run, each started, written to, killed and cut off in the same way. README.md says what came of it."""
