# SPDX-License-Identifier: Apache-2.0
"""`python -m rtl build [KERNEL]`: RTL, schedule and manifest of the kernels."""

import sys

from rtl.cli import main

sys.exit(main())
