#!/usr/bin/env python3
"""Makes the page that the alerts link to, of the section Alerts in docs/operations.md.

    deploy/prometheus/source/make_runbook.py [FILE]      default: deploy/prometheus/consoles/tandem.html; -: standard output

Prometheus serves the page itself, at /consoles/tandem.html: where there is an alert, there is its explanation,
without any other server.  The Markdown is what that section uses: headings, paragraphs, lists, a table, `code`,
*stress* and links.  Links to other documents become their names.
"""

import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tandem: alerts</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }}
h3 {{ margin: 2rem 0 .3rem; padding-top: .5rem; border-top: 1px solid #8886; }}
h3:target {{ border-left: 4px solid #d60; padding-left: .6rem; }}
code {{ font: .9em ui-monospace, monospace; }}
td, th {{ text-align: left; padding: .2rem 1rem .2rem 0; vertical-align: top; }}
</style>
</head>
<body>
<h1>Tandem: alerts</h1>
{}
</body>
</html>
"""


def inline(text):
    """A paragraph's text as HTML."""
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\[([^]]+)\]\(#(\w+)\)", r'<a href="#\2">\1</a>', text)
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    return re.sub(r"(?<!\w)\*([^*]+)\*(?!\w)", r"<em>\1</em>", text)


def table(lines):
    rows = [[inline(cell.strip()) for cell in line.strip("|").split("|")] for line in lines]
    return "<table>" + "".join(
        "<tr>" + "".join(f"<{kind}>{cell}</{kind}>" for cell in row) + "</tr>"
        for kind, row in [("th", rows[0])] + [("td", row) for row in rows[2:]]) + "</table>"


def block(lines):
    """Lines without a blank one between them."""
    if lines[0].startswith("### "):
        name = lines[0][4:]
        rest = block(lines[1:]) if len(lines) > 1 else ""
        return f'<h3 id="{name.lower()}">{name}</h3>\n{rest}'
    if lines[0].startswith("|"):
        return table(lines)
    items = re.split(r"\n- ", "\n" + "\n".join(lines))
    made = [f"<p>{inline(items[0].strip())}</p>"] if items[0].strip() else []
    if len(items) > 1:
        made.append("<ul>\n" + "\n".join(f"<li>{inline(item)}</li>" for item in items[1:]) + "\n</ul>")
    return "\n".join(made)


def main():
    manual = (ROOT / "docs/operations.md").read_text()
    section = manual[manual.index("\n## Alerts\n") + len("\n## Alerts\n"):].split("\n## ")[0]
    blocks = [part.strip("\n").split("\n") for part in re.split(r"\n\n+", section) if part.strip()]
    page = PAGE.format("\n".join(block(lines) for lines in blocks))
    target = sys.argv[1] if len(sys.argv) > 1 else ROOT / "deploy/prometheus/consoles/tandem.html"
    if target == "-":
        sys.stdout.write(page)
    else:
        pathlib.Path(target).write_text(page)


main()
