// deploy/docker and deploy/compose: by docker-compose's own parser, and against what the programs know.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import yaml from "js-yaml";
import { repository, unknownFlags } from "./programs.mjs";

const images = join(repository, "deploy/docker");
const compose = join(repository, "deploy/compose");
const parser = [["docker", "compose"], ["docker-compose"]].find(([program, ...args]) => spawnSync(program, [...args, "version"]).status === 0);
const skip = parser ? false : "docker-compose is not installed (scripts/setup --tests installs it)";

// The file as the parser reads it for one profile.
function parse(profile) {
  const [program, ...args] = parser;
  const text = execFileSync(program, [...args, "--profile", profile, "config"],
    { cwd: compose, encoding: "utf8", env: { ...process.env, COMPOSE_PROJECT_NAME: "tandem" }, stdio: ["ignore", "pipe", "pipe"] });
  const file = yaml.load(text);
  // Version 1 prints all services, whatever the profile.
  const services = Object.entries(file.services).filter(([, service]) => service.profiles === undefined || service.profiles.includes(profile));
  return { ...file, services: Object.fromEntries(services) };
}
const list = (command) => (Array.isArray(command) ? command : command?.split(" ") ?? []);
const expected = { cpu: ["gateway", "gpu-worker", "loader", "npu-worker"], amd: ["gateway", "gpu-worker", "loader", "npu-worker"], nvidia: ["gateway", "gpu-worker", "loader"] };

for (const profile of Object.keys(expected)) {
  test(`profile ${profile}: parsed, confined, and with flags that the programs have`, { skip }, () => {
    const { services, volumes, networks } = parse(profile);
    const programs = expected[profile].map((name) => `${name}-${profile}`);
    assert.deepEqual(Object.keys(services).sort(), [...programs, "grafana", "prometheus", "proxy"].sort());
    for (const [name, service] of Object.entries(services)) {
      assert.equal(service.read_only, true, name);
      assert.deepEqual(service.cap_drop, ["ALL"], name);
      assert.deepEqual(service.security_opt, ["no-new-privileges:true"], name);
      assert.equal(service.privileged, undefined, name);
      if (name !== "grafana") assert.equal(service.user, "10001:10001", name);
      if (service.build) assert.ok(existsSync(join(repository, service.build.dockerfile)), name);
      assert.equal((service.ports ?? []).length > 0, ["proxy", "grafana", "prometheus"].includes(name), `${name}: ports for the machine`);
    }
    for (const name of programs) {
      const program = `tandem-${name.slice(0, -profile.length - 1)}`;
      assert.match(services[name].image, new RegExp(`^${program}:`));
      assert.deepEqual(unknownFlags(program, list(services[name].command)), [], name);
      assert.deepEqual(Object.keys(services[name].networks), ["inside"], name);
    }
    for (const name of ["sockets", "public"]) assert.match(volumes[name].driver_opts.o, /uid=10001,gid=10001,mode=0700/);
    assert.equal(networks.inside.internal, true);
    // The proxy gets the gateway's socket and no other.
    assert.doesNotMatch(JSON.stringify(services.proxy.volumes), /sockets/);
  });

  test(`profile ${profile}: sockets that are called are listened on, and Prometheus' targets are there`, { skip }, () => {
    const { services } = parse(profile);
    const args = Object.values(services).flatMap((service) => list(service.command));
    const listening = new Set(args.filter((arg) => arg.startsWith("--listen=")).map((arg) => arg.slice("--listen=".length)));
    const called = args.map((arg) => /^--(?:loader|worker|npu-worker)=(.*)$/.exec(arg)?.[1]).filter(Boolean);
    assert.deepEqual(called.filter((target) => !listening.has(target)), []);
    assert.ok(listening.has(services.proxy.environment.TANDEM_GATEWAY_GRPC.replace("unix@", "unix:")));
    const ports = new Map(Object.values(services).flatMap((service) => {
      const port = list(service.command).find((arg) => arg.startsWith("--metrics="))?.split(":").at(-1);
      return (service.networks.inside?.aliases ?? []).map((alias) => [alias, port]);
    }));
    ports.set("proxy", services.proxy.environment.TANDEM_PROXY_STATUS.split(":").at(-1));
    const targets = yaml.load(readFileSync(join(compose, "targets", profile === "nvidia" ? "without-npu" : "with-npu", "services.yml"), "utf8"));
    for (const { targets: [target] } of targets) assert.equal(ports.get(target.split(":")[0]), target.split(":")[1], target);
  });
}

test("the example has every setting, with the value that is used without it", () => {
  const used = [...readFileSync(join(compose, "compose.yaml"), "utf8").matchAll(/\$\{(\w+):-([^}]*)\}/g)].map(([, name, value]) => [name, value]);
  const example = new Map([...readFileSync(join(compose, ".env.example"), "utf8").matchAll(/^#(\w+)=(.*)$/gm)].map(([, name, value]) => [name, value]));
  // Empty in the file and an example in the example: there is none unless it is set.
  for (const [name, value] of used) assert.ok(value === "" ? example.has(name) : example.get(name) === value, `${name}: ${value} and ${example.get(name)}`);
  assert.deepEqual([...example.keys()].filter((name) => !used.some(([other]) => other === name)), [], "settings that nothing reads");
});

test("images are compiled once, from Debian alone, and run as one user", () => {
  const text = readFileSync(join(images, "Dockerfile"), "utf8");
  const stages = new Map(text.split(/^(?=FROM )/m).slice(1).map((part) => [/^FROM \S+ AS (\S+)$/m.exec(part)[1], part]));
  for (const [name, part] of stages) {
    const from = /^FROM (\S+)/.exec(part)[1];
    assert.ok(from === "debian:trixie-slim" || stages.has(from), `${name} is from ${from}`);
    assert.equal(/scripts\/build/.test(part), name === "build", `${name}: what compiles is one stage`);
  }
  const { services } = yaml.load(readFileSync(join(compose, "compose.yaml"), "utf8"));
  const built = new Set(Object.values(services).filter((service) => service.build).map(({ build, image }) => {
    assert.equal(build.dockerfile, "deploy/docker/Dockerfile");
    assert.ok(image.includes(`-${build.target}:`), `${image} is built as ${build.target}`);
    return build.target;
  }));
  assert.deepEqual([...built].sort(), [...stages.keys()].filter((name) => !["packages", "build", "base", "service"].includes(name)).sort());
  for (const name of built) {
    assert.match(stages.get(name), /^USER 10001:10001$/m, name);
    assert.match(stages.get(name), /^HEALTHCHECK /m, name);
  }
  const ignored = readFileSync(join(repository, ".dockerignore"), "utf8").split("\n");
  for (const [, sources] of text.matchAll(/^COPY (?!--from)(.*) \S+$/gm)) {
    for (const source of sources.split(" ")) {
      assert.ok(existsSync(join(repository, source)), source);
      assert.ok(ignored.some((line) => line.startsWith("!") && (source === line.slice(1) || source.startsWith(`${line.slice(1)}/`))), `${source} is ignored`);
    }
  }
});
