# SPDX-License-Identifier: Apache-2.0
"""`python -m pnr KERNEL --platform ecp5-85|tang138k`."""

import sys

from pnr.cli import main

sys.exit(main())
