// SPDX-License-Identifier: BSD-2-Clause
/*
 * world.mjs - three daemons to look at: a and b, nodes of pool shop; main, which watches the pool, has a store with two partitions and a
 * block target, and serves the console. Everything is in one directory, on free ports of loopback, and gone at the end.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join, resolve } from "node:path";

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const PATIENCE_MS = 60000;

/* Waits until fn returns something, and returns it. */
export async function until(what, fn, patience = PATIENCE_MS) {
  const end = Date.now() + patience;
  let last;
  for (;;) {
    try {
      const got = await fn();
      if (got) return got;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`not in ${patience / 1000} s: ${what}${last ? ` (${last.message})` : ""}`);
    await pause(50);
  }
}

async function freePorts(n) {
  const servers = await Promise.all(Array.from({ length: n }, async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    return server;
  }));
  const ports = servers.map((s) => s.address().port);
  await Promise.all(servers.map((s) => new Promise((done) => s.close(done))));
  return ports;
}

const times = "beat = 20ms\nlease = 1s\npromote = 1200ms";

export class World {
  constructor(stagd, prefix = join(existsSync("/dev/shm") ? "/dev/shm" : "/tmp", "stag-console-")) {
    this.stagd = resolve(stagd);
    this.dir = mkdtempSync(prefix);
    this.processes = new Map();
  }

  async start({ token = "the-token-of-this-world-0123456789" } = {}) {
    const [a, b, store, target, api] = await freePorts(5);
    this.ports = { a, b, store, target, api };
    this.token = token;
    this.base = `http://127.0.0.1:${api}`;
    this.write("secrets", `nodes node ${"n".repeat(32)}\nadmin read,write,admin ${"a".repeat(32)}\n`);
    this.write("admin", `${"a".repeat(32)}\n`);
    this.write("token", `${token}\n`);
    this.node("a", a, "create = yes\nsize = 32M");
    this.node("b", b, "");
    this.main();
    this.run("a");
    await until("a is primary", () => this.roll()?.primary === "a");
    this.run("b");
    this.run("main");
    await until("the API answers", () => this.get("/status"));
    await until("b is in sync", async () => (await this.pool()).nodes?.filter((n) => ["primary", "standby"].includes(n.role)).length === 2);
    return this;
  }

  write(name, text) {
    writeFileSync(join(this.dir, name), text, { mode: 0o600 });
  }

  node(name, port, more) {
    mkdirSync(join(this.dir, name));
    this.write(`${name}.ini`, `[daemon]\nname = ${name}\nstate = ${name}/daemon\n[pool shop]\nnode = ${name}\nstate = ${name}/shop\nsecrets = secrets\n` +
      `roll = file:roll\naddress = 127.0.0.1\nport = ${port}\n${times}\n${more}\n`);
    mkdirSync(join(this.dir, name, "daemon"));
    mkdirSync(join(this.dir, name, "shop"));
  }

  main() {
    const p = this.ports;
    mkdirSync(join(this.dir, "main"));
    this.write("main.ini", `[daemon]\nname = main\nstate = main\n` +
      `[watch shop]\nnodes = 127.0.0.1:${p.a},127.0.0.1:${p.b}\nuser = admin\nsecret-file = admin\n` +
      `[store disk]\npath = disk.store\ncreate = yes\nsize = 64M\naddress = 127.0.0.1\nport = ${p.store}\n` +
      `partition.goods = 16M level=durable local:write\npartition.scratch = 8M order=any local:write remote:read\n` +
      `[target disk0]\niqn = iqn.2026-01.org.example:disk0\naddress = 127.0.0.1\nport = ${p.target}\nlun.0 = store:disk/goods\n` +
      `[api]\nlisten = 127.0.0.1:${p.api}\ntoken-file = token\nroots = .\n`);
  }

  roll() {
    return JSON.parse(readFileSync(join(this.dir, "roll"), "utf8"));
  }

  run(name) {
    const log = createWriteStream(join(this.dir, `${name}.log`), { flags: "a" });
    const child = spawn(this.stagd, ["--config", join(this.dir, `${name}.ini`)], { cwd: this.dir, stdio: ["ignore", "pipe", "pipe"] });
    child.stdout.pipe(log);
    child.stderr.pipe(log);
    this.processes.set(name, child);
  }

  async kill(name, signal = "SIGKILL") {
    const child = this.processes.get(name);
    this.processes.delete(name);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.kill(signal);
    await gone;
  }

  async ask(method, path, body, headers = {}) {
    const all = { ...headers, Authorization: `Bearer ${this.token}` };
    const answer = await fetch(`${this.base}/api/v1${path}`, { method, body, headers: all, signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer;
  }

  /* The address of a page of the console, with the token that it needs. */
  url(place = "") {
    return `${this.base}/#token=${this.token}&/${place}`;
  }

  async get(path) {
    return (await this.ask("GET", path)).json();
  }

  put(name, text) {
    return this.ask("PUT", `/pools/shop/values/${name}`, text, { "Content-Type": "application/octet-stream" });
  }

  pool() {
    return this.get("/pools/shop");
  }

  logs() {
    return ["a", "b", "main"].map((n) => {
      try {
        return `--- ${n}\n${readFileSync(join(this.dir, `${n}.log`), "utf8").split("\n").slice(-25).join("\n")}`;
      } catch {
        return `--- ${n}: no log`;
      }
    }).join("\n");
  }

  /* Changes values continuously; stop() ends that and returns the last acknowledged value of each. */
  load(names = 8) {
    const acknowledged = new Map();
    let going = true;
    const writer = async () => {
      for (let n = 1; going; n++) {
        const name = `load-${n % names}`;
        await this.put(name, `${n}`).then(() => acknowledged.set(name, `${n}`), () => pause(100));
        await pause(5);
      }
    };
    const done = writer();
    return {
      stop: async () => {
        going = false;
        await done;
        return acknowledged;
      },
      count: () => acknowledged.size,
    };
  }

  async end() {
    await Promise.all(["main", "b", "a"].filter((n) => this.processes.has(n)).map((n) => this.kill(n, "SIGKILL")));
    rmSync(this.dir, { recursive: true, force: true });
  }
}
