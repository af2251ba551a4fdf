"""Which Python packages training needs; imports none of them."""
import importlib.metadata
import re
import sys

FIT = {"torch": (2, 5), "safetensors": (0, 4)}


def check(needed):
    """Ends with one line when a package is missing or too old."""
    for name, least in needed.items():
        wanted = f"{name} {'.'.join(map(str, least))} or later"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise SystemExit(f"{sys.executable} has no {name} ({wanted} is needed)") from None
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < least:
            raise SystemExit(f"{sys.executable} has {name} {version}, and {wanted} is needed")
