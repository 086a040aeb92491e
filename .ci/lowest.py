"""Print constraints that hold every dependency of pyproject.toml at the lowest version that it admits."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
SHIPPED = ("report", "postgresql", "nvidia", "serve", "steps")  # not PyTorch and Ray, whose old versions are gigabytes
for requirement in [*project["dependencies"], *(each for extra in SHIPPED for each in extras[extra])]:
    name, lowest = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\d.!]+)", requirement).groups()
    print(f"{name}=={lowest}")
