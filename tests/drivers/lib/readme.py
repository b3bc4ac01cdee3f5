"""The fenced blocks of README.md, and what a worker loop from there has to stand. Imported by the tests in Python."""

import pathlib
import re
import sys

README = pathlib.Path(__file__).resolve().parents[3] / "README.md"


def snippet(language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8"), re.S | re.M)
    if len(found) != 1:
        sys.exit(f"README.md has {len(found)} blocks of {language}, not one")
    return found[0]


def skip(reason):
    print(reason)
    sys.exit(77)


def same(what, expected, actual):
    if expected != actual:
        sys.exit(f"{what}: expected {expected!r}, got {actual!r}")
