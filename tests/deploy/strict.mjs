// Kubernetes' own schemas, strictly: a field that no schema knows is an error, as `kubectl apply --validate`
// has it.  The schemas come as compiled functions, which read the fields they know; the rest is unknown.
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

function watched(value, path, unread) {
  if (value === null || typeof value !== "object") return value;
  const children = new Map();
  const left = new Set(Array.isArray(value) ? [] : Object.keys(value));
  unread.push({ path, left });
  return new Proxy(value, {
    get(target, key) {
      left.delete(key);
      if (typeof key === "symbol" || !Object.hasOwn(target, key)) return target[key];
      if (!children.has(key)) children.set(key, watched(target[key], `${path}/${key}`, unread));
      return children.get(key);
    },
    ownKeys(target) {  // a map, whose keys are free
      left.clear();
      return Reflect.ownKeys(target);
    },
  });
}

// The faults of `object` by the schema of that name ("IoK8sApiAppsV1Deployment"), a line each.
export function problems(schema, object) {
  const { validate } = require(`./node_modules/kubernetes-models/_schemas/${schema}.js`);
  const unread = [];
  const valid = validate(watched(object, "", unread));
  const wrong = valid ? [] : validate.errors.map((error) => `${error.instancePath}: ${error.message ?? error.keyword}`);
  return wrong.concat(unread.flatMap(({ path, left }) => [...left].map((key) => `${path}/${key}: no such field`)));
}
