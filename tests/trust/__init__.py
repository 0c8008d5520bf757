"""What an operator may rely on, measured: one line per promise, each in processes of its own.

`python -m tests.trust --all` prints a table: the line, the figure, whether it is met. A line is a module with

    WANTED             what it must reach
    UNITS              the names of its parts, each of which runs for less than four minutes
    run(unit, folder)  counts of one part; `folder` is empty and gone afterwards
    judge(counts)      the figure of all parts, and whether it is met; counts are sums, those that begin with
                       `most_` the largest
"""
