"""Rates of resuming with which attending to what is found pays. Measured ones depend on what else this machine does."""

from kvdrive.prefix.rates import Rates

ATTENDING_PAYS = Rates(1, 0, 1, 0, 1, 1, 0, 0, 0)

# For `python -c`: the command `kvdrive` with these rates.
KVDRIVE = f"""
from kvdrive.cli.main import main
from kvdrive.prefix.rates import Rates
from kvdrive.prefix.resume import Costs

begin = Costs.__init__

def known(costs, *given, **named):
    begin(costs, *given, **named)
    costs._rates = {ATTENDING_PAYS}

Costs.__init__ = known
main()
"""
