// deploy/kubernetes/replicas: a replica of the model in each pod of a StatefulSet.
import assert from "node:assert/strict";
import { test } from "node:test";
import { checkWay, container, of, render, skip, templates } from "./rendering.mjs";

checkWay("replicas");

test("the gateway looks for the pods by the names that they get", { skip }, () => {
  const objects = render("replicas");
  const [{ metadata, spec }] = of(objects, "StatefulSet");
  const service = of(objects, "Service").find((one) => one.metadata.name === spec.serviceName);
  assert.equal(service.spec.clusterIP, "None");
  // A pod that ends or is not ready has no name.
  assert.equal(service.spec.publishNotReadyAddresses, undefined);
  const [gateway, worker] = templates(objects);
  const { args, ports } = container(worker, "gpu-worker");
  const port = args.find((arg) => arg.startsWith("--listen=")).split(":").at(-1);
  assert.ok(container(gateway, "gateway").args.includes(
    `--replica-names=tls://${metadata.name}-{}.${service.metadata.name}.${metadata.namespace}.svc.cluster.local:${port}`));
  assert.ok(ports.some((one) => String(one.containerPort) === port));
});

test("a worker that ends waits until the gateway has noticed and its requests have ended", { skip }, () => {
  const worker = templates(render("replicas"))[1];
  const [program, seconds] = container(worker, "gpu-worker").lifecycle.preStop.exec.command;
  assert.equal(program, "sleep");
  // Three looks of five seconds, and 30 s that an answer of DNS may be kept.
  assert.ok(Number(seconds) >= 45);
  assert.ok(worker.spec.terminationGracePeriodSeconds > Number(seconds));
});
