"""`python -m kvdrive` is the command `kvdrive`."""

from kvdrive.cli import main

main()
