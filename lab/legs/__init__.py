"""A pool in other machines' memory: machines that are lost, cut off and paused, and their legs."""
