// What the built programs say of themselves, to hold what deploy/ writes against.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const repository = fileURLToPath(new URL("../../", import.meta.url));
const flagsOf = new Map();

function knownFlags(program) {
  if (!flagsOf.has(program)) {
    const help = execFileSync(join(process.env.TANDEM_BIN, program), ["--help"], { encoding: "utf8" });
    flagsOf.set(program, new Set(help.match(/--[a-z][a-z-]*/g)));
  }
  return flagsOf.get(program);
}

// The flags among `args` that `program` does not have.
export const unknownFlags = (program, args) =>
  args.filter((arg) => !knownFlags(program).has(arg.split("=")[0]));
