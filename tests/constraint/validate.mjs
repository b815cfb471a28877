// Runs constraint_walks and has ajv validate every text that its masks allowed.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import Ajv from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

const [program, count = '10000', seed = '1'] = process.argv.slice(2);
const walks = spawn(program, [count, seed], { stdio: ['ignore', 'pipe', 'inherit'] });
const ended = new Promise((resolve) => walks.on('exit', resolve));
let schemas = 0, refused = 0, texts = 0, failures = 0;

function fail(...what) {
  if (++failures <= 10) console.error(...what);
}

for await (const line of createInterface({ input: walks.stdout })) {
  const walk = JSON.parse(line);
  ++schemas;
  if (walk.refused !== undefined) {
    ++refused;
    if (!/may match the same value|no value fits|is not supported|is supported/.test(walk.refused)) {
      fail('refused', JSON.stringify(walk.schema), walk.refused);
    }
    continue;
  }
  const ajv = new Ajv({ strict: false, logger: false, multipleOfPrecision: 9 });
  addFormats(ajv);
  const validate = ajv.compile(walk.schema);
  for (const text of walk.texts) {
    ++texts;
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      fail('not JSON', text, error.message);
      continue;
    }
    if (!validate(value)) {
      fail('not valid', JSON.stringify(walk.schema), text, JSON.stringify(validate.errors));
    }
  }
}
const status = await ended;
console.log(`${schemas} schemas, ${refused} refused, ${texts} texts, ${failures} not valid; seed ${seed}`);
if (status !== 0) console.error(`constraint_walks ended with ${status}`);
process.exit(status === 0 && failures === 0 && texts > schemas / 2 ? 0 : 1);
