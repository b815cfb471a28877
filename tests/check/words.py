#!/usr/bin/env python3
"""Finds hard words in comments, messages and documents: words that engineers from everywhere trip over.

    tests/check/words.py [FILE...]      default: every tracked text file

Prints FILE:LINE: the words and what to write instead; ends with 1 if there are any.  Third-party files,
measurements (they are dated) and released interfaces are left out.
"""

import re
import subprocess
import sys

# What is found, and what to write.
RULES = [
    (r"\b(is|are|was|were|be|been|being) told\b|\bunless told\b", "name the call, flag or message that tells it"),
    (r"\bmend(s|ed|ing)?\b", "fix"),
    (r"\bfor want of\b", "because ... ran out; without"),
    (r"\b(hence|thence|whence|thereof|therein)\b", "so; from there; its"),
    (r"\bas ever\b", "as always, or nothing"),
    (r"\bto and fro\b|\bby and by\b|\bso-manieth\b", "say what happens"),
    (r"\bsuch a one\b|\bas were[,.;]", "name the thing"),
    (r"\b(of|for|by|than) who\b", "name the client, caller, holder or reader"),
    (r"(^|[.:;] +|// |# )Who (?!am)[a-z]+ (?!.*\?)", "name the client, caller, holder or reader"),
    (r"\bthat (is|are) none\b|(?<!there )\b(is|are) none[,.;:]", "say what it is: malformed, unknown, empty"),
    (r"\bof which\b(?!.*\?)", "two sentences, or whose"),
    (r"\bwhat is\b(?!.*\?)", "name the thing: the file, the error, the rest"),
    (r"((//|#|\*\*)|^ *) ?What is\b(?!.*\?)", "name the thing: the file, the error, the rest"),
    (r"\b(is|are) no more\b", "no longer exists; at most"),
    (r"\bto be (said|had)\b", "say it; exists, is missing"),
    (r"\bstored over\b|\bnone has\b|\b(none|nothing|nobody) but\b", "only; overwritten; no ... has"),
    (r"\b[Bb]eginnings\b", "prefixes"),
    (r"\bis there, else\b|\bas if it were none\b", "two sentences"),
]

TEXT = re.compile(r"\.(cc|h|comp|glsl|inc|md|proto|py|sh|js|mjs|yml|yaml|toml|cmake|service|txt|html)$|(^|/)[A-Za-z-]+$")
LEFT_OUT = re.compile(
    r"(^|/)vendor/|^docs/measurements/|^tests/check/(released/|words)|^tests/data/|^tools/demo_model/|LICENSE|NOTICE"
)


def findings(name, text):
    """Lines of `text` that break a rule, as printed."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, advice in COMPILED:
            match = pattern.search(line)
            if match:
                found.append(f"{name}:{number}: '{match.group(0).strip()}': {advice}")
    return found


COMPILED = [(re.compile(pattern), advice) for pattern, advice in RULES]


def main(names):
    if not names:
        names = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split("\n")
        names = [name for name in names if TEXT.search(name) and not LEFT_OUT.search(name)]
    found = []
    for name in names:
        try:
            with open(name, encoding="utf-8") as file:
                found += findings(name, file.read())
        except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
            continue  # deleted, a link to a folder, or no text
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
