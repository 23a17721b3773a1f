"""`python -m kvdrive` is the command `kvdrive`."""

from kvdrive.cli.main import main

main()
