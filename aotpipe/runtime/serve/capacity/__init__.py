"""Plans how many servers answer a rate of requests, by simulating a server with costs that are measured.

`costs` measures a bundle's program and a server on this host, `simulation` runs the server's own queue in
virtual time, `planning` looks for the fewest cores, and `open_loop` asks a real server at random moments, to
tell how far the simulation is from it.
"""
