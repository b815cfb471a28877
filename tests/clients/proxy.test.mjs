// HAProxy with deploy/proxy's configuration before the cluster: TLS, gRPC, REST, OpenAI's client,
// streams that are not held back, and clients that have no certificate.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const proxyFolder = fileURLToPath(new URL("../../deploy/proxy/", import.meta.url));
const protoFolder = fileURLToPath(new URL("../../proto/", import.meta.url));
const haproxy = spawnSync("haproxy", ["-v"]).status === 0;
const skip = haproxy ? false : "haproxy is not installed (scripts/setup --tests installs it)";
const folder = mkdtempSync(join(tmpdir(), "tandem-proxy."));
const proxies = [];
let ca, open, closed, upstream;

const openssl = (...args) => execFileSync("openssl", args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

function makeAuthority(name) {
  openssl("req", "-x509", ...key, "-days", "2", "-subj", `/CN=${name}`, "-keyout", `${name}.key`, "-out", `${name}.crt`);
}

// NAME.crt, its key beside it as NAME.crt.key, and both in NAME.pem.
function makeCertificate(name, authority) {
  writeFileSync(join(folder, `${name}.ext`), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  openssl("req", "-new", ...key, "-subj", `/CN=${name}`, "-keyout", `${name}.crt.key`, "-out", `${name}.csr`);
  openssl("x509", "-req", "-in", `${name}.csr`, "-CA", `${authority}.crt`, "-CAkey", `${authority}.key`, "-CAcreateserial", "-days", "2",
    "-extfile", `${name}.ext`, "-out", `${name}.crt`);
  writeFileSync(join(folder, `${name}.pem`), readFileSync(join(folder, `${name}.crt`), "utf8") + readFileSync(join(folder, `${name}.crt.key`), "utf8"));
}
const pem = (name) => readFileSync(join(folder, name));

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

// Starts deploy/proxy/start and waits until its status page answers.
async function startProxy(settings) {
  const [port, status] = [await freePort(), await freePort()];
  const child = spawn(join(proxyFolder, "start"), { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env,
    TANDEM_PROXY_CONFIG: join(proxyFolder, "haproxy.cfg"), TANDEM_PROXY_BIND: `127.0.0.1:${port}`, TANDEM_PROXY_STATUS: `127.0.0.1:${status}`,
    TANDEM_PROXY_CERTIFICATE: join(folder, "server.pem"), TANDEM_PROXY_BODY_BYTES: "100000", ...settings } });
  const proxy = { port, status, child, log: "", url: `https://localhost:${port}` };
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => { proxy.log += data; });
  proxies.push(proxy);
  for (let i = 0; i < 100 && child.exitCode === null; ++i) {
    if (await fetch(`http://127.0.0.1:${status}/ready`).then((answer) => answer.ok, () => false)) return proxy;
    await sleep(50);
  }
  throw new Error(`the proxy did not start: ${proxy.log}`);
}

// A gateway that does as the tests say: each request is handed to the next test that asks for one.
async function startUpstream() {
  const waiting = [], arrived = [];
  const give = (stream) => (waiting.length ? waiting.shift()(stream) : arrived.push(stream));
  const plain = http.createServer((request, response) => give({ request, response })).listen(0, "127.0.0.1");
  const socket = join(folder, "grpc.sock");
  const rpc = http2.createServer();
  rpc.on("stream", (stream, headers) => give({ stream, headers }));
  rpc.listen(socket);
  await Promise.all([once(plain, "listening"), once(rpc, "listening")]);
  return { http: `127.0.0.1:${plain.address().port}`, grpc: `unix@${socket}`,
    next: () => (arrived.length ? Promise.resolve(arrived.shift()) : new Promise((resolve) => waiting.push(resolve))),
    close: () => { plain.close(); plain.closeAllConnections(); rpc.close(); } };
}

// An HTTP/1.1 exchange, read to its end.
function call(proxy, path, { method = "GET", body, headers = {}, ...options } = {}) {
  return new Promise((resolve, reject) => {
    const request = https.request(proxy.url + path, { method, ca, headers, agent: false, ...options }, async (response) => {
      try {
        let text = "";
        for await (const part of response) text += part;
        resolve({ status: response.statusCode, headers: response.headers, text });
      } catch (error) { reject(error); }
    });
    request.on("error", reject);
    request.end(body);
  });
}

function generation(proxy, credentials) {
  const definition = loader.loadSync("tandem/v1/generation.proto", { includeDirs: [protoFolder], keepCase: true, longs: Number, defaults: true, enums: String });
  return new (grpc.loadPackageDefinition(definition).tandem.v1.Generation)(`localhost:${proxy.port}`, credentials);
}
const invoke = (client, method, request) => new Promise((resolve, reject) =>
  client[method](request, { deadline: Date.now() + 10_000 }, (error, response) => (error ? reject(error) : resolve(response))));

before(async () => {
  if (!haproxy) return;
  for (const name of ["authority", "stranger"]) makeAuthority(name);
  makeCertificate("server", "authority");
  makeCertificate("client", "authority");
  makeCertificate("foreign", "stranger");
  ca = pem("authority.crt");
  upstream = await startUpstream();
  open = await startProxy({ TANDEM_GATEWAY_HTTP: new URL(process.env.TANDEM_URL).host,
    TANDEM_GATEWAY_GRPC: process.env.TANDEM_GRPC.replace("unix:", "unix@"), TANDEM_PROXY_OPEN_GRPC: "1" });
  closed = await startProxy({ TANDEM_GATEWAY_HTTP: upstream.http, TANDEM_GATEWAY_GRPC: upstream.grpc,
    TANDEM_PROXY_CLIENT_CA: join(folder, "authority.crt"), TANDEM_PROXY_CERTIFICATE: join(folder, "server.crt") });
});
after(async () => {
  for (const { child } of proxies) {
    if (child.exitCode !== null) continue;
    child.kill("SIGTERM");
    await once(child, "exit");
  }
  upstream?.close();
  rmSync(folder, { recursive: true, force: true });
});

test("the configuration has neither errors nor warnings", { skip }, () => {
  for (const { log } of proxies) assert.doesNotMatch(log, /WARNING|ALERT/);
});

test("gRPC over TLS: a chat streams, errors keep their code and details", { skip }, async () => {
  const client = generation(open, grpc.credentials.createSsl(ca));
  const messages = [];
  for await (const message of client.Chat({ messages: [{ role: "user", content: "What is the capital of Japan?" }],
    sampling: { temperature: 0 }, limits: { max_tokens: 12 } })) messages.push(message);
  assert.match(messages.map((message) => message.text).join(""), /Tokyo/);
  assert.ok(messages.length > 2);
  await assert.rejects(async () => { for await (const message of client.Generate({ text: "x", sampling: { top_p: 2 } })) assert.fail(message); },
    (error) => error.code === grpc.status.INVALID_ARGUMENT && /top_p/.test(error.details));
  client.close();
});

test("REST over HTTP/1.1 and HTTP/2, on the port that has gRPC", { skip }, async () => {
  const one = await call(open, "/tandem/v1/tokenize?text=The+capital", { headers: { origin: open.url } });
  assert.equal(one.status, 200, one.text);
  assert.ok(one.headers["strict-transport-security"]);
  const session = http2.connect(open.url, { ca });
  const stream = session.request({ ":path": "/tandem/v1/tokenize?text=The+capital" });
  let text = "";
  for await (const part of stream.setEncoding("utf8")) text += part;
  session.close();
  assert.deepEqual(JSON.parse(text), JSON.parse(one.text));
  assert.equal((await call(open, "/health", { headers: { origin: "https://elsewhere.example" } })).status, 403);
});

test("OpenAI's client streams over TLS", { skip }, async () => {
  const program = `import OpenAI from "openai";
    const client = new OpenAI({ baseURL: "${open.url}/v1", apiKey: "none", maxRetries: 0 });
    const stream = await client.chat.completions.create({ model: "demo.Q8_0.gguf", temperature: 0, max_tokens: 12, stream: true,
      messages: [{ role: "user", content: "What is the capital of Japan?" }] });
    for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");`;
  // Its trust in our authority can only be given to a process, at its start.
  const child = spawn(process.execPath, ["--input-type=module", "-e", program],
    { cwd: fileURLToPath(new URL(".", import.meta.url)), stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, NODE_EXTRA_CA_CERTS: join(folder, "authority.crt") } });
  let text = "";
  child.stdout.on("data", (data) => { text += data; });
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert.match(text, /Tokyo/);
});

const certificate = (name) => ({ cert: pem(`${name}.crt`), key: pem(`${name}.crt.key`) });

test("an event is with the client before the gateway writes the next", { skip, timeout: 20_000 }, async () => {
  const request = https.get(`${closed.url}/v1/stream`, { ca, ...certificate("client"), agent: false });
  const { response: sender, request: received } = await upstream.next();
  assert.equal(received.headers["x-forwarded-for"], "127.0.0.1");
  sender.writeHead(200, { "content-type": "text/event-stream" });
  sender.write("data: 0\n\n");
  const [response] = await once(request, "response");
  for (let i = 1; i <= 20; ++i) {
    assert.equal(String((await once(response, "data"))[0]), `data: ${i - 1}\n\n`);
    sender.write(`data: ${i}\n\n`);
  }
  // A client that goes away ends the gateway's work.
  response.destroy();
  await once(sender, "close");
});

test("a gRPC message is with the other side before the next is written, both ways", { skip, timeout: 20_000 }, async () => {
  const session = http2.connect(closed.url, { ca, ...certificate("client") });
  const stream = session.request({ ":method": "POST", ":path": "/test.Service/Echo", "content-type": "application/grpc", te: "trailers" });
  const { stream: sender, headers } = await upstream.next();
  assert.equal(headers[":path"], "/test.Service/Echo");
  sender.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  sender.on("wantTrailers", () => sender.sendTrailers({ "grpc-status": "5" }));
  for (let i = 0; i < 20; ++i) {
    stream.write(`${i}`);
    assert.equal(String((await once(sender, "data"))[0]), `${i}`);
    sender.write(`${i}!`);
    assert.equal(String((await once(stream, "data"))[0]), `${i}!`);
  }
  const trailers = once(stream, "trailers");
  sender.end();
  assert.equal((await trailers)[0]["grpc-status"], "5");
  session.destroy();
});

test("a client needs a certificate that the authority signed", { skip }, async () => {
  await assert.rejects(call(closed, "/health"), /certificate required|ECONNRESET|EPIPE/i);
  await assert.rejects(call(closed, "/health", certificate("foreign")), /unknown ca|ECONNRESET|EPIPE/i);
  for (const credentials of [grpc.credentials.createSsl(ca), grpc.credentials.createSsl(ca, pem("foreign.crt.key"), pem("foreign.crt"))]) {
    const client = generation(closed, credentials);
    await assert.rejects(invoke(client, "ListModels", {}), (error) => error.code === grpc.status.UNAVAILABLE);
    client.close();
  }
  const allowed = call(closed, "/anything", certificate("client"));
  (await upstream.next()).response.end("in");
  assert.equal((await allowed).text, "in");
});

test("gRPC, which asks for no keys, wants certificates unless it is opened", { skip }, async () => {
  const shut = await startProxy({ TANDEM_GATEWAY_HTTP: upstream.http, TANDEM_GATEWAY_GRPC: upstream.grpc });
  const client = generation(shut, grpc.credentials.createSsl(ca));
  await assert.rejects(invoke(client, "ListModels", {}),
    (error) => error.code === grpc.status.UNAUTHENTICATED && /TANDEM_PROXY_CLIENT_CA/.test(error.details));
  client.close();
});

test("private paths are refused", { skip }, async () => {
  for (const path of ["/metrics", "/metrics?x=1", "/metric%73", "//metrics/"]) {
    assert.equal((await call(open, path)).text, "not found\n", path);
  }
  const body = JSON.stringify({ text: "x".repeat(100_000) });
  assert.equal((await call(open, "/tandem/v1/generate", { method: "POST", body })).status, 413);
  await assert.rejects(call(open, "/health", { maxVersion: "TLSv1.1", minVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" }));
  await assert.rejects(fetch(`http://127.0.0.1:${open.port}/health`), "plain HTTP");
  const figures = await (await fetch(`http://127.0.0.1:${open.status}/metrics`)).text();
  assert.match(figures, /haproxy_frontend_http_responses_total\{proxy="public",code="4xx"\} [1-9]/);
});

test("prompts and keys stay out of the log, and a gateway that is away is a clear answer", { skip }, async () => {
  await call(open, "/tandem/v1/tokenize?text=secretprompt", { headers: { authorization: "Bearer secretkey" } });
  const away = await startProxy({ TANDEM_GATEWAY_HTTP: upstream.http, TANDEM_GATEWAY_GRPC: `unix@${folder}/none.sock`,
    TANDEM_PROXY_OPEN_GRPC: "1" });
  const client = generation(away, grpc.credentials.createSsl(ca));
  await assert.rejects(invoke(client, "ListModels", {}), (error) => error.code === grpc.status.UNAVAILABLE);
  client.close();
  assert.match(open.log, /method=GET path=\/tandem\/v1\/tokenize status=200/);
  assert.doesNotMatch(open.log, /secret/);
});
