// What the ways of running on Kubernetes are held against: its schemas, the strictest pod security standard, and what
// the programs know.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import yaml from "js-yaml";
import { repository, unknownFlags } from "./programs.mjs";
import { problems } from "./strict.mjs";

export const folder = join(repository, "deploy/kubernetes");
// Kustomize's components came with kubectl 1.21.
const version = spawnSync("kubectl", ["version", "--client", "-o", "json"], { encoding: "utf8" });
const minor = version.status === 0 ? Number.parseInt(JSON.parse(version.stdout).clientVersion.minor, 10) : 0;
export const skip = minor >= 21 ? false : `kubectl 1.21 or newer is not installed (${minor ? `1.${minor} is` : "none is"})`;

const schemas = { Deployment: "IoK8sApiAppsV1Deployment", HorizontalPodAutoscaler: "IoK8sApiAutoscalingV2HorizontalPodAutoscaler",
  Namespace: "IoK8sApiCoreV1Namespace", NetworkPolicy: "IoK8sApiNetworkingV1NetworkPolicy", PodDisruptionBudget: "IoK8sApiPolicyV1PodDisruptionBudget",
  Service: "IoK8sApiCoreV1Service", StatefulSet: "IoK8sApiAppsV1StatefulSet", ServiceAccount: "IoK8sApiCoreV1ServiceAccount" };

export const render = (path) => yaml.loadAll(execFileSync("kubectl", ["kustomize", join(folder, path)], { encoding: "utf8" }));
export const of = (objects, kind) => objects.filter((object) => object.kind === kind);

// The pod templates of a rendering: of Deployments and StatefulSets, and of both kinds of pods of LeaderWorkerSets.
export function templates(objects) {
  const groups = of(objects, "LeaderWorkerSet").map((object) => object.spec.leaderWorkerTemplate);
  const sets = [...of(objects, "Deployment"), ...of(objects, "StatefulSet")];
  return [...sets.map((object) => object.spec.template), ...groups.flatMap((group) => [group.leaderTemplate, group.workerTemplate])];
}
const containers = (template) => [...(template.spec.initContainers ?? []), ...template.spec.containers];
export const container = (template, name) => containers(template).find((one) => one.name === name);
const matches = (selector, labels) => Object.entries(selector ?? {}).every(([key, value]) => labels[key] === value);

// As the API server's admission by the "restricted" standard would, for the fields that are used here.
function checkRestricted({ spec }, where) {
  assert.equal(spec.securityContext.runAsNonRoot, true, where);
  assert.equal(spec.securityContext.seccompProfile.type, "RuntimeDefault", where);
  for (const field of ["hostNetwork", "hostPID", "hostIPC"]) assert.equal(spec[field], undefined, `${where}: ${field}`);
  for (const volume of spec.volumes) {
    assert.ok(["emptyDir", "secret", "persistentVolumeClaim"].some((kind) => volume[kind]), `${where}: volume ${volume.name}`);
  }
  for (const { name, securityContext, ports = [] } of containers({ spec })) {
    assert.equal(securityContext.allowPrivilegeEscalation, false, `${where}: ${name}`);
    assert.equal(securityContext.readOnlyRootFilesystem, true, `${where}: ${name}`);
    assert.deepEqual(securityContext.capabilities, { drop: ["ALL"] }, `${where}: ${name}`);
    assert.ok(ports.every((port) => port.hostPort === undefined), `${where}: ${name}`);
  }
}

function checkPod(template, where) {
  const volumes = template.spec.volumes.map((volume) => volume.name);
  const mounted = new Set();
  assert.equal(new Set(volumes).size, volumes.length, `${where}: a volume twice`);
  for (const { name, image, args = [], command, env = [], volumeMounts, readinessProbe } of containers(template)) {
    assert.equal(command, undefined, `${where}: ${name} runs what its image runs`);
    assert.ok(readinessProbe, `${where}: ${name} has no readiness probe`);
    if (image !== "tandem-proxy") assert.deepEqual(unknownFlags(image, args), [], `${where}: flags of ${name}`);
    const variables = env.map((variable) => variable.name);
    assert.equal(new Set(variables).size, variables.length, `${where}: ${name} has a variable twice`);
    for (const [, variable] of args.join(" ").matchAll(/\$\((\w+)\)/g)) assert.ok(variables.includes(variable), `${where}: ${name} has no ${variable}`);
    for (const mount of volumeMounts) {
      assert.ok(volumes.includes(mount.name), `${where}: ${name} mounts ${mount.name}, which is no volume`);
      mounted.add(mount.name);
    }
  }
  assert.deepEqual(volumes.filter((name) => !mounted.has(name)), [], `${where}: volumes that nobody mounts`);
}

// Sockets that are called are listened on, by the names of both sides.
function checkSockets(template, where) {
  const args = containers(template).flatMap((one) => one.args ?? []);
  const listening = new Set(args.filter((arg) => arg.startsWith("--listen=")).map((arg) => arg.slice("--listen=".length)));
  for (const arg of args) {
    const [, target] = /^--(?:loader|worker)=(unix:.*)$/.exec(arg) ?? [];
    if (target) assert.ok(listening.has(target), `${where}: nobody listens on ${target}`);
  }
  for (const one of containers(template)) {
    for (const probe of ["startupProbe", "readinessProbe", "livenessProbe"]) {
      const [program, target] = one[probe]?.exec?.command ?? [];
      if (program === undefined) continue;
      assert.equal(program, "tandem-health", `${where}: ${one.name}`);
      assert.ok((one.args ?? []).includes(`--listen=${target}`), `${where}: ${one.name} is asked at ${target}`);
    }
  }
}

// Two tests of the kustomization in that folder.
export function checkWay(path) {
  test(`${path} renders, and every field is Kubernetes'`, { skip }, () => {
    const objects = render(path);
    for (const object of objects) {
      assert.ok(object.kind === "Namespace" || object.metadata.namespace === "tandem", `${object.kind} ${object.metadata.name} is in no namespace`);
      if (object.kind === "LeaderWorkerSet") continue;
      assert.ok(schemas[object.kind], `no schema of ${object.kind}`);
      assert.deepEqual(problems(schemas[object.kind], object), [], `${object.kind} ${object.metadata.name}`);
    }
    for (const template of templates(objects)) assert.deepEqual(problems("IoK8sApiCoreV1PodTemplateSpec", template), []);
  });

  test(`${path} asks for no right, and what it names is there`, { skip }, () => {
    const objects = render(path);
    assert.equal(of(objects, "Namespace")[0].metadata.labels["pod-security.kubernetes.io/enforce"], "restricted");
    const all = templates(objects);
    assert.ok(all.length > 0);
    for (const template of all) {
      const where = `${path}, ${template.metadata.labels["app.kubernetes.io/component"]}`;
      checkRestricted(template, where);
      checkPod(template, where);
      checkSockets(template, where);
      assert.equal(template.spec.serviceAccountName, of(objects, "ServiceAccount")[0].metadata.name);
    }
    const pods = (selector) => all.filter((template) => matches(selector, template.metadata.labels));
    const portNames = (template) => containers(template).flatMap((one) => (one.ports ?? []).map((port) => port.name));
    for (const service of of(objects, "Service")) {
      const chosen = pods(service.spec.selector);
      assert.equal(chosen.length, 1, `service ${service.metadata.name}`);
      for (const port of service.spec.ports) assert.ok(portNames(chosen[0]).includes(port.targetPort), `service ${service.metadata.name}`);
    }
    for (const budget of of(objects, "PodDisruptionBudget")) assert.equal(pods(budget.spec.selector.matchLabels).length, 1, budget.metadata.name);
    for (const policy of of(objects, "NetworkPolicy")) assert.ok(pods(policy.spec.podSelector.matchLabels).length > 0, policy.metadata.name);
    for (const { spec: { scaleTargetRef: target } } of of(objects, "HorizontalPodAutoscaler")) {
      assert.ok(objects.some((object) => object.kind === target.kind && object.apiVersion === target.apiVersion && object.metadata.name === target.name));
    }
  });
}
