// Makes dist/ from the npm packages of package-lock.json: the libraries that the chat page uses.
//   node make.mjs           writes dist/ and its SHA256SUMS
//   node make.mjs --check   compares dist/ with what it would write; exit status 1 if they differ
// dist/ is committed, so that a build needs neither node nor a network.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const packages = mkdtempSync(join(tmpdir(), "tandem-vendor."));

const read = (path) => readFileSync(join(packages, "node_modules", path));
// A source map that is not served is a request that fails.
const script = (path) => Buffer.from(read(path).toString().replace(/\n*\/\/# sourceMappingURL=.*\n*$/, "\n"));

// Fonts as WOFF 2 alone, which every browser with ES modules knows, from the folder of the style.
function styleOf(path) {
  return Buffer.from(read(path).toString()
    .replace(/,url\(fonts\/[^)]*\.(?:woff|ttf)\) format\("(?:woff|truetype)"\)/g, "")
    .replaceAll("url(fonts/", "url("));
}

function licences() {
  const lock = JSON.parse(readFileSync(join(here, "package-lock.json")));
  const parts = ["The chat page of Tandem contains these libraries, unchanged but for packaging."];
  for (const path of Object.keys(lock.packages).filter((name) => name.startsWith("node_modules/")).sort()) {
    const name = path.slice("node_modules/".length);
    if (["argparse", "commander"].includes(name)) continue;  // of their command lines, not of the page
    const { version, license, homepage } = JSON.parse(read(`${name}/package.json`));
    const file = readdirSync(join(packages, path)).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} ${version} has no licence file`);
    parts.push(`${"=".repeat(80)}\n${name} ${version} (${license})${homepage ? `\n${homepage}` : ""}\n`,
      read(`${name}/${file}`).toString().replace(/\r\n/g, "\n").trim());
  }
  return Buffer.from(`${parts.join("\n\n")}\n`);
}

function makeFiles() {
  const files = new Map([
    ["markdown-it.js", script("markdown-it/dist/browser/markdown-it.esm.min.mjs")],
    ["katex.js", script("katex/dist/katex.min.js")],
    ["katex.css", styleOf("katex/dist/katex.min.css")],
    ["licences.txt", licences()],
  ]);
  for (const name of readdirSync(join(packages, "node_modules/katex/dist/fonts")).sort()) {
    if (name.endsWith(".woff2")) files.set(name, read(`katex/dist/fonts/${name}`));
  }
  const sum = (bytes) => createHash("sha256").update(bytes).digest("hex");
  const sums = [...files].map(([name, bytes]) => `${sum(bytes)}  ${name}\n`).sort((a, b) => (a.slice(66) < b.slice(66) ? -1 : 1));
  return files.set("SHA256SUMS", Buffer.from(sums.join("")));
}

try {
  for (const name of ["package.json", "package-lock.json"]) copyFileSync(join(here, name), join(packages, name));
  execFileSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: packages, stdio: ["ignore", "ignore", "inherit"] });
  const files = makeFiles();
  if (process.argv.includes("--check")) {
    const names = new Set([...files.keys(), ...readdirSync(dist)]);
    const same = (name) => files.has(name) && readdirSync(dist).includes(name) && files.get(name).equals(readFileSync(join(dist, name)));
    const different = [...names].filter((name) => !same(name));
    if (different.length > 0) {
      console.error(`dist/ differs from what the packages give: ${different.join(", ")}; run node make.mjs`);
      process.exitCode = 1;
    }
  } else {
    rmSync(dist, { recursive: true, force: true });
    mkdirSync(dist);
    for (const [name, bytes] of files) writeFileSync(join(dist, name), bytes);
  }
} finally {
  rmSync(packages, { recursive: true });
}
