// deploy/kubernetes: a pod that is a whole cluster, on each kind of device.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { test } from "node:test";
import yaml from "js-yaml";
import { repository } from "./programs.mjs";
import { checkWay, container, folder, of, render, skip, templates } from "./rendering.mjs";

for (const path of ["overlays/cpu", "overlays/amd", "overlays/nvidia"]) checkWay(path);

test("devices are asked for where the overlay says so", { skip }, () => {
  const limits = (path, name) => container(templates(render(path))[0], name)?.resources.limits;
  assert.equal(limits("overlays/cpu", "gpu-worker"), undefined);
  assert.deepEqual(limits("overlays/amd", "gpu-worker"), { "amd.com/gpu": 1 });
  assert.deepEqual(limits("overlays/amd", "npu-worker"), { "squat.ai/npu": 1 });
  assert.deepEqual(limits("overlays/nvidia", "gpu-worker"), { "nvidia.com/gpu": 1 });
  assert.equal(container(templates(render("overlays/nvidia"))[0], "npu-worker"), undefined);
});

test("the autoscaler's figure is one that the adapter serves and the gateway emits", { skip }, () => {
  const { rules } = yaml.load(readFileSync(join(folder, "prometheus-adapter/rules.yaml"), "utf8"));
  const documented = readFileSync(join(repository, "docs/metrics.md"), "utf8");
  for (const { spec } of of(render("single-node"), "HorizontalPodAutoscaler")) {
    for (const { pods } of spec.metrics) {
      const rule = rules.custom.find((one) => one.name.as === pods.metric.name);
      assert.match(pods.metric.name, new RegExp(rule.name.matches));
      assert.ok(documented.includes(`\`${pods.metric.name}\``), pods.metric.name);
    }
  }
});

test("the Prometheus operator scrapes every page, with the names that the rules use", { skip }, () => {
  const own = mkdtempSync(join(tmpdir(), "tandem-kustomization."));
  const way = (path) => relative(own, join(folder, path));
  writeFileSync(join(own, "kustomization.yaml"), yaml.dump({ resources: [way("overlays/cpu")], components: [way("components/pod-monitor")] }));
  const objects = render(relative(folder, own));
  rmSync(own, { recursive: true });
  const [{ spec }] = of(objects, "PodMonitor");
  const [template] = templates(objects);
  assert.deepEqual(spec.selector.matchLabels, { "app.kubernetes.io/name": template.metadata.labels["app.kubernetes.io/name"] });
  const named = [...template.spec.initContainers, ...template.spec.containers]
    .flatMap(({ name, ports }) => ports.map((port) => [port.name, name])).filter(([port]) => port.startsWith("m-"));
  assert.deepEqual(spec.podMetricsEndpoints.map((endpoint) => endpoint.port).sort(), named.map(([port]) => port).sort());
  const targets = readFileSync(join(repository, "deploy/compose/targets/with-npu/services.yml"), "utf8");
  for (const [, name] of named) assert.ok(targets.includes(`job: tandem-${name}}`), name);
});
