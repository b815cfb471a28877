#!/usr/bin/env python3
"""Writes what the programs of a package are made of besides Tandem's own source:

    notices.py --source TREE --build FOLDER --name tandem-tools --version 0.2.0 --output FOLDER PROGRAM...

sbom.cdx.json            CycloneDX 1.5: the shared libraries that they load, the packages whose
                         headers are compiled in, and the libraries kept in the source tree
THIRD-PARTY-NOTICES.txt  the same list for readers, with the licences of compiled-in libraries

Nothing is listed by hand.  Shared libraries come from ldd; headers from ninja's record of what the
program's objects include; both are looked up in dpkg's database.  Libraries kept in the source tree are
the packages of each vendor/package-lock.json.  Times are left out, so that equal input gives equal files.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

APACHE = "Apache-2.0"
# Debian's short names that differ from SPDX's, without their "+" or "-or-later".
SPDX = {
    "Expat": "MIT", "BSD-3-clause": "BSD-3-Clause", "BSD-2-clause": "BSD-2-Clause", "Boost-1.0": "BSL-1.0",
    "Apache-2.0": APACHE, "Zlib": "Zlib", "zlib": "Zlib", "BSL-1.0": "BSL-1.0", "MIT": "MIT", "ISC": "ISC",
    "BSD-2-Clause": "BSD-2-Clause", "BSD-3-Clause": "BSD-3-Clause", "Apache-2": APACHE,
}


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"notices: {' '.join(command[:4])} ...: {result.stderr.strip()}")
    return result.stdout


def loaded_libraries(program):
    """Paths of the shared libraries that `program` loads, directly or not."""
    paths = []
    for line in run("ldd", str(program)).splitlines():
        if "not found" in line:
            sys.exit(f"notices: {program}: {line.strip()}")
        match = re.search(r"(?:=> )?(/\S+) \(0x", line)
        if match:
            paths.append(os.path.realpath(match.group(1)))
    return paths


def included_headers(build, program):
    """Headers outside the source tree that the objects of `program` include."""
    # A copy, since a ninja that runs this is writing its records, and another would repair or compact them.
    with tempfile.TemporaryDirectory() as folder:
        for name in ("build.ninja", "CMakeFiles/rules.ninja", ".ninja_deps"):
            copy = Path(folder) / name
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(build / name, copy)
        ninja = ("ninja", "-C", folder)
        inputs = run(*ninja, "-t", "inputs", f"bin/{program}").split()
        objects = [path for path in inputs if path.endswith(".o")]
        recorded = run(*ninja, "-t", "deps", *objects)
    headers = set()
    for line in recorded.splitlines():
        path = line.strip()
        if path.startswith("/usr/"):
            headers.add(os.path.realpath(path))
    if not headers:
        sys.exit(f"notices: ninja has no record of what {program} includes: build it in {build} first")
    return sorted(headers)


def owners(paths):
    """The installed packages that own `paths`."""
    found = set()
    paths = list(paths)
    for start in range(0, len(paths), 500):
        some = paths[start:start + 500]
        # A merged /usr: dpkg may know /usr/lib/x as /lib/x.
        both = some + [path[4:] for path in some if path.startswith("/usr/lib")]
        result = subprocess.run(("dpkg", "-S", *both), capture_output=True, text=True)
        for line in result.stdout.splitlines():
            package, _, path = line.partition(": ")
            if "diversion" not in package and path in both:
                found.update(name.strip() for name in package.split(","))
    return found


def described(packages):
    """What dpkg says of `packages`: a list of dicts."""
    form = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${Homepage}\n"
    rows = [line.split("\t") for line in run("dpkg-query", "-W", f"-f={form}", *packages).splitlines()]
    names = ("name", "version", "architecture", "source", "homepage")
    return [dict(zip(names, row)) for row in rows]


def copyright_text(package):
    folder = Path("/usr/share/doc") / package
    for name in ("copyright", "copyright.gz"):
        if (folder / name).exists():
            data = (folder / name).read_bytes()
            return (gzip.decompress(data) if name.endswith(".gz") else data).decode("utf-8", "replace")
    return ""


LONG_TEXT = 64 * 1024


def main_licence(text):
    """Of a long debian/copyright: the stanza of all files, and the text of its licence."""
    stanzas = re.split(r"\n[ \t]*\n", text)
    everything = next((s for s in stanzas if re.search(r"^Files:\s*\*\s*$", s, re.M)), stanzas[0])
    licence = re.search(r"^License:[ \t]*(\S[^\n]*)$", everything, re.M)
    texts = [s for s in stanzas if licence and s.startswith(f"License: {licence.group(1)}\n")]
    return "\n\n".join([everything, *texts, "(The package's own copyright file also lists files that are under other licences.)"])


def licences(text):
    """The licences of a debian/copyright in its machine-readable form: SPDX ids, or Debian's names."""
    if not text.startswith("Format:"):
        return []
    found = []
    for stanza in re.split(r"\n[ \t]*\n", text):
        files = re.search(r"^Files:\s*(.*)$", stanza, re.M)
        licence = re.search(r"^License:[ \t]*(\S[^\n]*)$", stanza, re.M)
        if files and licence and not files.group(1).startswith("debian/"):
            if licence.group(1) not in found:
                found.append(licence.group(1))
    return [SPDX.get(name, name) for name in found]


def licence_entries(names):
    known = set(SPDX.values())
    return [{"license": {"id": name} if name in known else {"name": name}} for name in names]


def debian_release():
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith(("ID=", "VERSION_ID=")):
            yield line.split("=", 1)[1].strip('"')


def debian_components(packages, how):
    distro = "-".join(reversed(sorted(debian_release())))
    for entry in described(sorted(packages)):
        purl = (f"pkg:deb/debian/{entry['name']}@{entry['version']}"
                f"?arch={entry['architecture']}&distro={distro}").replace("+", "%2B")
        text = copyright_text(entry["name"])
        yield {"type": "library", "bom-ref": purl, "name": entry["name"], "version": entry["version"],
               "purl": purl, "licenses": licence_entries(licences(text)),
               "properties": [{"name": "tandem:use", "value": how},
                              {"name": "tandem:source-package", "value": entry["source"]}],
               **({"externalReferences": [{"type": "website", "url": entry["homepage"]}]}
                  if entry["homepage"] else {}),
               "_text": text}


def vendored_components(source, name):
    """Packages of the lock files beside libraries kept in the tree; a service has those of its folder."""
    service = name.removeprefix("tandem-").replace("-", "_")
    for lock in sorted(source.glob(f"services/{service}/**/vendor/package-lock.json")):
        text = "\n".join(path.read_text() for path in sorted(lock.parent.glob("dist/licen[cs]es.txt")))
        if not text:
            sys.exit(f"notices: {lock.parent}/dist has no licences.txt")
        for path, entry in json.loads(lock.read_text())["packages"].items():
            library = path.rpartition("node_modules/")[2]
            if not library or entry.get("dev"):
                continue
            if not re.search(rf"\b{re.escape(library)}\b", text):
                continue  # the library's own tools, which are not in dist
            purl = f"pkg:npm/{library.replace('@', '%40')}@{entry['version']}"
            yield {"type": "library", "bom-ref": purl, "name": library, "version": entry["version"],
                   "purl": purl, "licenses": [{"license": {"id": entry["license"]}}] if "license" in entry else [],
                   "properties": [{"name": "tandem:use", "value": "in the source tree"}], "_text": text}


def notices(name, version, components):
    lines = [f"{name} {version}: third-party notices", "",
             "Tandem is licensed under the Apache License, Version 2.0.  Its programs also contain the",
             "libraries below, or load them.  Generated by cmake/notices.py.", ""]
    for how, heading in (("linked", "Shared libraries that are loaded; their licences come with their packages,\n"
                                    "as /usr/share/doc/PACKAGE/copyright"),
                         ("compiled in", "Libraries compiled in from their headers; licences below"),
                         ("in the source tree", "Libraries kept in the source tree; licences below")):
        chosen = [c for c in components if c["properties"][0]["value"] == how]
        if not chosen:
            continue
        lines += [heading, ""]
        for component in chosen:
            names = [next(iter(entry["license"].values())) for entry in component["licenses"]]
            names = ", ".join(names[:4]) + (", and others" if len(names) > 4 else "")
            lines.append(f"  {component['name']} {component['version']}" + (f"  ({names})" if names else ""))
        lines.append("")
    texts = {}
    for component in components:
        if component["properties"][0]["value"] != "linked" and component["_text"]:
            text = component["_text"]
            text = text if len(text) < LONG_TEXT else main_licence(text)
            texts.setdefault(text, []).append(component["name"])
    for text, names in texts.items():
        lines += ["=" * 100, ", ".join(names), "=" * 100, "", text.rstrip(), ""]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("source", "build", "name", "version", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    options = parser.parse_args()
    source, build, output = Path(options.source), Path(options.build), Path(options.output)

    linked, compiled = set(), set()
    for program in options.programs:
        linked |= owners(loaded_libraries(build / "bin" / program))
        compiled |= owners(included_headers(build, program))
    compiled -= linked
    # Headers of a library that is loaded anyway, of the C library and of the compiler, add nothing.
    sources = {entry["source"] for entry in described(sorted(linked))}
    entries = described(sorted(compiled)) if compiled else []
    skipped = re.compile(r"^(gcc-|glibc|linux|llvm-toolchain-)")
    compiled = {e["name"] for e in entries if e["source"] not in sources and not skipped.match(e["source"])}

    components = list(debian_components(linked, "linked"))
    if compiled:
        components += debian_components(compiled, "compiled in")
    components += vendored_components(source, options.name)
    output.mkdir(parents=True, exist_ok=True)
    (output / "THIRD-PARTY-NOTICES.txt").write_text(notices(options.name, options.version, components))

    for component in components:
        del component["_text"]
    own = f"pkg:generic/{options.name}@{options.version}"
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
           "metadata": {"component": {"type": "application", "bom-ref": own, "name": options.name,
                                      "version": options.version, "purl": own,
                                      "licenses": licence_entries([APACHE])}},
           "components": components,
           "dependencies": [{"ref": own, "dependsOn": [c["bom-ref"] for c in components]}]}
    digest = hashlib.sha256(json.dumps(bom, sort_keys=True).encode()).hexdigest()
    bom["serialNumber"] = f"urn:uuid:{uuid.UUID(digest[:32], version=4)}"
    (output / "sbom.cdx.json").write_text(json.dumps(bom, indent=2) + "\n")


if __name__ == "__main__":
    main()
