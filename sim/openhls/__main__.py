# SPDX-License-Identifier: Apache-2.0
"""`python -m openhls`."""

import sys

from openhls.cli import main

sys.exit(main())
