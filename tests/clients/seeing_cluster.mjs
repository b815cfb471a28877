// A cluster on the trained model that sees, on the reference arithmetic, so that answers are the
// reference's to the token.
import { chmodSync, copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { startCluster } from "./cluster.mjs";

const folder = process.env.TANDEM_PICTURE_MODEL ??
  resolve(dirname(fileURLToPath(import.meta.url)), "../../../shared/models/demo2");
const programs = ["tandem-gateway", "tandem-loader", "tandem-image-decoder"];

// Why there is no such cluster, or false.
export function cannotSee(bin) {
  if (!existsSync(join(folder, "reference.json"))) return `no model that sees at ${folder} (set TANDEM_PICTURE_MODEL)`;
  const missing = [...programs, "reference_worker"].find((name) => !existsSync(join(bin, name)));
  return missing ? `no ${join(bin, missing)}` : false;
}

// `tandem` finds the services beside itself: it is copied beside links to them, and the reference
// worker takes the GPU worker's place, with the flags that it knows.
function programsThatSee(bin) {
  const made = mkdtempSync(join(tmpdir(), "tandem-seeing."));
  copyFileSync(join(bin, "tandem"), join(made, "tandem"));
  for (const name of programs) symlinkSync(resolve(bin, name), join(made, name));
  const worker = join(made, "tandem-gpu-worker");
  writeFileSync(worker, `#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --listen) listen=$2 ;; --name) name=$2 ;; esac
  shift
done
exec "${resolve(bin, "reference_worker")}" --listen "$listen" --name "$name" --kind gpu
`);
  chmodSync(worker, 0o755);
  return made;
}

// As startCluster.
export async function startSeeingCluster(bin, flags = []) {
  const made = programsThatSee(bin);
  const remove = () => rmSync(made, { recursive: true, force: true });
  try {
    const cluster = await startCluster(made, ["--npu", "off", "--max-sequences", "4", ...flags], "", { model: folder });
    return { ...cluster, stop: () => cluster.stop().finally(remove) };
  } catch (error) {
    remove();
    throw error;
  }
}

// The conversations that the reference answered: [{turns: [{text, files, answer}], answer, promptTokens, imageTokens}].
// `files`: Buffers, before the text.  The last turn has no answer: it is asked for.
export function conversations() {
  const marker = "<start_of_image>";
  return JSON.parse(readFileSync(join(folder, "reference.json"), "utf8")).conversations.map((one) => {
    const files = one.images.map((name) => readFileSync(join(folder, "images", name)));
    const turns = one.turns.map(([text, answer]) => {
      const parts = text.split(marker);
      return { text: parts.at(-1), files: files.splice(0, parts.length - 1), answer };
    });
    return { turns, answer: one.continuation_text, promptTokens: one.tokens.length, imageTokens: 16 * one.images.length };
  });
}
