"""Print the requirements of the package and of the extras named on the command line, one per line.

Lets the set-up install dependencies before the package itself is built.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
requirements = list(project["dependencies"])
for extra in sys.argv[1:]:
    requirements += project["optional-dependencies"][extra]
print("\n".join(requirement.replace(" ", "") for requirement in requirements))
