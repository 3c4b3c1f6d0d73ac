"""Other people's test suites, plain and under Forebay, compared test by test; and databases whose disk is cut.

`make suites` runs all of it and writes docs/suites.md; `python3 -m suites --help` has the options. Each suite is a module of its
own (`python`, `fio`, `git`, `dpkg`, `sqlite`; of programs whose calls an agent makes `go`, `python_notify`, `sqlite_musl`, `fsx`,
`pjdfstest`; `cuts` is a loop rather than a comparison), all of them give the one type of `report`.
"""
