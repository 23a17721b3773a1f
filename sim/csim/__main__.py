"""`python -m csim [KERNEL ...]`."""

import sys

from csim.run import main

sys.exit(main())
