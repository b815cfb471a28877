// deploy/kubernetes/multi-node: a model's layers over several pods.
import assert from "node:assert/strict";
import { test } from "node:test";
import { checkWay, container, of, render, skip, templates } from "./rendering.mjs";

checkWay("multi-node");

test("a group's gateway calls its own stages, and each layer is somewhere", { skip }, () => {
  const objects = render("multi-node");
  const [{ metadata, spec }] = of(objects, "LeaderWorkerSet");
  const [leader, worker] = templates(objects);
  const { args } = container(leader, "gateway");
  const stage = container(worker, "gpu-worker");
  const port = stage.args.find((arg) => arg.startsWith("--listen=")).split(":").at(-1);
  const called = args.filter((arg) => arg.startsWith("--worker=tls:"));
  assert.deepEqual(called, Array.from({ length: spec.leaderWorkerTemplate.size - 1 },
    (_, i) => `--worker=tls://$(POD_NAME)-${i + 1}.${metadata.name}.${metadata.namespace}.svc.cluster.local:${port}`));
  assert.ok(stage.ports.some((one) => String(one.containerPort) === port));
  let next = 0;
  for (const arg of args.filter((one) => one.startsWith("--layers="))) {
    const [, first, last] = /=gpu\d+=(\d+)-(\d+)$/.exec(arg).map(Number);
    assert.equal(first, next, arg);
    next = last + 1;
  }
  assert.equal(next, 62);
});

test("its autoscaler asks for the figure that single nodes are scaled by", { skip }, () => {
  const metrics = (path) => of(render(path), "HorizontalPodAutoscaler")[0].spec.metrics;
  assert.deepEqual(metrics("multi-node"), metrics("single-node"));
});
