# SPDX-License-Identifier: Apache-2.0
"""`python -m vendor synth|cosim|export|link KERNEL --platform smartssd|zu17eg`."""

import sys

from vendor.cli import main

sys.exit(main())
