"""`python -m aotpipe` is the command `aotpipe`."""

from aotpipe.cli import main

if __name__ == "__main__":
    main()
