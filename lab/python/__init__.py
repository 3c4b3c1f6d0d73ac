"""The Python package forebay beside other stores that Python programs use."""
