#!/usr/bin/env python3
"""docs_test.py PROGRAMS VERSION: README.md and docs/ against the tree and the programs.

Commands and flags of tandem and its services exist; relative links and anchors resolve; figures of the README are
those of docs/performance.md; the version is one; manual pages are well formed.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path()
VERSION = ""
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
# History speaks of commands as they were.
CURRENT = [path for path in DOCUMENTS if path.name != "CHANGELOG.md" and not {"decisions", "measurements"} & set(path.parts)]
WRAPPERS = ("sudo", "time", "exec", "env", "nohup")


@lru_cache(maxsize=None)
def help_of(program, *commands):
    """What `program COMMAND --help` prints; None where there is no such command."""
    result = subprocess.run((PROGRAMS / program, *commands, "--help"), capture_output=True, text=True, timeout=60)
    return result.stdout if result.returncode == 0 else None


@lru_cache(maxsize=None)
def flags_of(program, *commands):
    text = help_of(program, *commands) or ""
    return set(re.findall(r"(?<![\w-])(--?[A-Za-z][\w-]*)", text)) | {"--help", "-h", "--manual"}


@lru_cache(maxsize=None)
def subcommands():
    listed = set(re.findall(r"^  ([a-z]+)\s{2,}\S", help_of("tandem"), re.M))
    assert {"serve", "generate"} <= listed, "tandem --help lists no commands"
    return listed | {"manual", "help", "version"}


def code_of(path):
    """(line number, text) of each line of a code block and of each code span."""
    fenced = False
    previous_blank = True
    in_block = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        indented = line.startswith("    ") and (previous_blank or in_block)
        in_block = indented or (in_block and not line.strip())
        previous_blank = not line.strip()
        if fenced or indented:
            yield number, line.strip()
        else:
            for span in re.findall(r"`([^`]+)`", line):
                yield number, span


def commands_in(text):
    """The simple commands of a shell line, each a list of words."""
    text = re.sub(r"(^|\s)#\s.*$", "", text)
    for part in re.split(r"\|\||&&|[|;&]|\$\(|\)", text):
        try:
            words = shlex.split(part)
        except ValueError:
            words = part.split()
        while words and (re.match(r"^[A-Z_]+=", words[0]) or words[0] in WRAPPERS or words[0] == "$"):
            words.pop(0)
        if words:
            yield words


def is_program(word):
    name = word.rpartition("/")[2]
    return name if re.fullmatch(r"tandem(-[a-z-]+)?", name) and (PROGRAMS / name).is_file() else None


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\- ]", "", text.strip().lower().replace("`", ""))
    return text.replace(" ", "-")


@lru_cache(maxsize=None)
def anchors(path):
    found, fenced = {}, False
    for line in path.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        match = None if fenced else re.match(r"#{1,6}\s+(.*)$", line)
        if match:
            name = slug(match.group(1))
            found[name] = found.get(name, -1) + 1
    return {name + (f"-{i}" if i else "") for name, times in found.items() for i in range(times + 1)}


class DocsTest(unittest.TestCase):
    def report(self, faults):
        self.assertFalse(faults, "\n" + "\n".join(faults))

    def test_commands_and_their_flags_exist(self):
        faults, checked = [], 0
        for path in CURRENT:
            where = path.relative_to(ROOT)
            for number, text in code_of(path):
                for words in commands_in(text):
                    program = is_program(words[0])
                    # One word is a name (of a program, a package, a user), not a command.
                    if not program or len(words) == 1:
                        continue
                    checked += 1
                    commands = ()
                    if program == "tandem" and not words[1].startswith(("-", "[", ".")) and words[1] != "COMMAND":
                        if words[1] not in subcommands():
                            faults.append(f"{where}:{number}: tandem has no command '{words[1]}'")
                            continue
                        commands = (words[1],)
                    known = flags_of(program, *commands) | (flags_of(program) if commands else set())
                    for word in words[1:]:
                        flag = re.match(r"\[?(--[a-z][\w-]*)", word)
                        if flag and flag.group(1) not in known:
                            faults.append(f"{where}:{number}: {' '.join((program, *commands))} has no {flag.group(1)}")
        self.report(faults)
        self.assertGreater(checked, 50, "the commands of the documents are no longer found")

    def test_flags_of_the_readme_exist_somewhere(self):
        known = set()
        for program in sorted(PROGRAMS.glob("tandem*")):
            if program.name != "tandem-make-emulated-kernels":
                known |= flags_of(program.name)
        for command in subcommands():
            known |= flags_of("tandem", command)
        faults = [f"README.md:{number}: no program has {flag}"
                  for number, text in code_of(ROOT / "README.md") if not text.startswith(("scripts/", "docker"))
                  for flag in re.findall(r"^--[a-z][\w-]*", text) if flag not in known]
        self.report(faults)

    def test_scripts_exist(self):
        faults = []
        for path in CURRENT:
            for number, text in code_of(path):
                for words in commands_in(text):
                    script = words[0]
                    if re.match(r"^(scripts|tests|deploy)/[\w./-]+$", script) and not (ROOT / script).exists():
                        faults.append(f"{path.relative_to(ROOT)}:{number}: there is no {script}")
        self.report(faults)

    def test_relative_links_and_anchors_resolve(self):
        faults, checked = [], 0
        for path in DOCUMENTS:
            where = path.relative_to(ROOT)
            fenced = False
            for number, line in enumerate(path.read_text().splitlines(), 1):
                fenced ^= line.startswith("```")
                if fenced or line.startswith("    "):
                    continue
                plain = re.sub(r"`[^`]*`", "", line)
                links = re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r"(?:src|href)=\"([^\"]+)\"", plain)
                for link in links:
                    if re.match(r"^[a-z]+:", link):
                        continue
                    checked += 1
                    name, _, anchor = link.partition("#")
                    target = (path.parent / name).resolve() if name else path
                    if not target.exists():
                        faults.append(f"{where}:{number}: {link}: no such file")
                    elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                        faults.append(f"{where}:{number}: {link}: no such heading")
        self.report(faults)
        self.assertGreater(checked, 50, "the links of the documents are no longer found")

    def test_figures_of_the_readme_are_those_of_the_performance_document(self):
        readme = (ROOT / "README.md").read_text()
        marked = re.search(r"<!-- figures: rows of docs/performance.md -->\n(.*?)<!-- end of figures -->", readme, re.S)
        self.assertTrue(marked, "README.md has no table of figures")
        rows = [line for line in marked.group(1).splitlines() if line.startswith("|")][2:]
        self.assertGreater(len(rows), 3)
        lines = [line.replace("*", "") for line in (ROOT / "docs/performance.md").read_text().splitlines()]
        faults = []
        for row in rows:
            cells = [cell.strip().replace("*", "") for cell in row.strip("|").split("|")]
            numbers = [n for cell in cells[1:4] for n in re.findall(r"\d[\d,.]*\d|\d", cell)]
            self.assertTrue(numbers, row)
            there = any(all(re.search(rf"(?<![\d,.]){re.escape(n)}(?![\d,]|\.\d)", line) for n in numbers) for line in lines)
            if not there:
                faults.append(f"no line of docs/performance.md has all of {', '.join(numbers)}: {row}")
        self.report(faults)

    def test_the_size_in_the_readme_is_that_of_the_operations_manual(self):
        said = re.search(r"27B Q4_0\s+needs (\d+) GiB for a context of 8,192 tokens", (ROOT / "README.md").read_text())
        row = re.search(r"^\| Gemma 3 27b \|(.*)\|$", (ROOT / "docs/operations.md").read_text(), re.M)
        self.assertTrue(said and row, "README.md or docs/operations.md no longer says what 27B needs")
        cells = [cell.strip() for cell in row.group(1).split("|")]
        needed = float(cells[0]) + float(cells[4])
        self.assertTrue(needed <= float(said.group(1)) < needed + 1, f"{said.group(0)}: weights and KV are {needed:.2f} GiB")

    def test_the_threat_model_names_tests_that_exist(self):
        sources = [path for folder in ("services", "tools", "tests") for path in (ROOT / folder).rglob("*.cc")
                   if path.stem.endswith(("_test", "_fuzzer"))]
        names = {source.stem for source in sources}
        for source in sources:
            for suite_and_test in re.findall(r"^TEST(?:_[FP])?\((\w+),\s+(\w+)\)", source.read_text(), re.M):
                names.update(suite_and_test)
        text = (ROOT / "docs/threat-model.md").read_text()
        named = re.findall(r"`(\w+)`", text)
        self.assertGreater(len(named), 20)
        self.assertEqual([name for name in named if name not in names], [])

    def test_manual_pages_are_well_formed(self):
        self.assertTrue(shutil.which("groff") and shutil.which("lexgrog"),
                        "groff or lexgrog is missing: scripts/setup --tests installs groff-base and man-db")
        programs = ["tandem", "tandem-gateway", "tandem-gpu-worker", "tandem-loader", "tandem-health"]
        if (PROGRAMS / "tandem-npu-worker").is_file():  # it is built where XRT is
            programs.append("tandem-npu-worker")
        faults = []
        for program in programs:
            words = (PROGRAMS / program, "manual" if program == "tandem" else "--manual")
            page = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
            warnings = subprocess.run(("groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z"), input=page,
                                      capture_output=True, text=True, timeout=60).stderr
            faults += [f"{program}: {line}" for line in warnings.splitlines()]
            # What apropos finds: lintian's bad-whatis-entry.
            with tempfile.NamedTemporaryFile("w", suffix=".1") as file:
                file.write(page)
                file.flush()
                found = subprocess.run(("lexgrog", file.name), capture_output=True, text=True, timeout=60)
            if not re.search(rf': "{program} - [^"]*[^".]"$', found.stdout.strip()):
                faults.append(f"{program}: NAME is not 'program \\- summary': {found.stdout}{found.stderr}")
            for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
                if f"\n.SH {section}\n" not in page:
                    faults.append(f"{program}: no section {section}")
        self.report(faults)

    def test_the_version_is_one(self):
        changes = (ROOT / "CHANGELOG.md").read_text()
        releases = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d{2}-\d{2}$", changes, re.M)
        self.assertEqual(releases[0], VERSION, "CHANGELOG.md's newest release is not the project's version")
        debian = re.match(r"tandem \(([^-]+)-\d+\)", (ROOT / "deploy/debian/changelog").read_text())
        self.assertTrue(debian and debian.group(1) == VERSION, "deploy/debian/changelog's newest entry")
        for path in CURRENT:
            for tag in re.findall(r"(?:newTag: |tandem-[a-z-]+:)(\d+\.\d+\.\d+)", path.read_text()):
                self.assertEqual(tag, VERSION, path)
        for program in ("tandem", "tandem-gateway", "tandem-gpu-worker", "tandem-loader", "tandem-health"):
            text = subprocess.run((PROGRAMS / program, "--version"), capture_output=True, text=True, timeout=60).stdout
            self.assertRegex(text, rf"^{program} {re.escape(VERSION)}\ncommit: \S+\nbuild: \w+.*, (GCC|Clang) \d")


if __name__ == "__main__":
    PROGRAMS, VERSION = Path(sys.argv[1]), sys.argv[2]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
