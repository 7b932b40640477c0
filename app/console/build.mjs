// SPDX-License-Identifier: BSD-2-Clause
/*
 * build.mjs - the console, from sources to a C file: npm ci, vite build, gzip, arrays of bytes.
 *
 * meson calls it: node build.mjs SOURCES WORK OUT.c [--with-tests]. It works in a copy, so that the source tree stays as it
 * is; packages are fetched only when package-lock.json has changed since the last time.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { extname, join, relative, sep } from "node:path";
import { gzipSync } from "node:zlib";

const [sources, work, out, ...flags] = process.argv.slice(2);
const withTests = flags.includes("--with-tests");
const copied = ["index.html", "package.json", "package-lock.json", ".npmrc", "vite.config.js", "src"];

const types = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".json": "application/json",
  ".webmanifest": "application/manifest+json",
};

function fail(text) {
  process.stderr.write(`console: ${text}\n`);
  process.exit(1);
}

function copySources() {
  mkdirSync(work, { recursive: true });
  for (const name of copied) {
    rmSync(join(work, name), { recursive: true, force: true });
    if (existsSync(join(sources, name))) cpSync(join(sources, name), join(work, name), { recursive: true });
  }
}

function run(command, args) {
  const ran = spawnSync(command, args, { cwd: work, encoding: "utf8", env: { ...process.env, NO_COLOR: "1" } });
  return { ok: ran.status === 0, text: `${ran.stdout ?? ""}${ran.stderr ?? ""}${ran.error ?? ""}` };
}

/* npm explains all of itself behind what went wrong. */
const firstLines = (text) => text.trim().split("\n").slice(0, 12).map((l) => `    ${l}`).join("\n");

/* What node_modules was made from: the lock, and whether the tests' packages are in. */
function wanted() {
  const lock = readFileSync(join(work, "package-lock.json"));
  return createHash("sha256").update(lock).update(String(withTests)).digest("hex");
}

function fetchPackages() {
  const stamp = join(work, "node_modules", ".fetched");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted()) return;
  const only = withTests ? [] : ["--omit=dev"];
  const got = run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", ...only]);
  if (!got.ok)
    fail(`its packages could not be fetched:\n${firstLines(got.text)}\n` +
      `'npm ci' needs the network, or a full npm cache. To build without the console:\n` +
      `    meson configure BUILD -Dconsole=disabled`);
  writeFileSync(stamp, wanted());
}

function bundle() {
  const made = run(process.execPath, [join("node_modules", "vite", "bin", "vite.js"), "build", "--logLevel", "warn"]);
  if (!made.ok) fail(`vite could not build it:\n${made.text}`);
}

function filesBelow(dir) {
  return readdirSync(dir).sort().flatMap((name) => {
    const path = join(dir, name);
    return statSync(path).isDirectory() ? filesBelow(path) : [path];
  });
}

function bytesOf(buffer) {
  const lines = [];
  for (let i = 0; i < buffer.length; i += 24) lines.push("\t" + [...buffer.subarray(i, i + 24)].join(",") + ",");
  return lines.join("\n");
}

function pack() {
  const dist = join(work, "dist");
  const files = filesBelow(dist).map((file) => {
    const plain = readFileSync(file);
    const packed = gzipSync(plain, { level: 9 });
    return {
      path: "/" + relative(dist, file).split(sep).join("/"),
      type: types[extname(file)] ?? "application/octet-stream",
      etag: createHash("sha256").update(plain).digest("hex").slice(0, 20),
      plain,
      packed: packed.length < plain.length ? packed : null,
    };
  });
  const array = (name, bytes) => `static const unsigned char ${name}[] = {\n${bytesOf(bytes)}\n};\n`;
  const arrays = files.map((f, i) => array(`file_${i}`, f.plain) + (f.packed ? "\n" + array(`packed_${i}`, f.packed) : ""));
  const rows = files.map((f, i) =>
    `\t{${JSON.stringify(f.path)}, ${JSON.stringify(f.type)}, "${f.etag}", file_${i}, sizeof(file_${i}), ` +
    (f.packed ? `packed_${i}, sizeof(packed_${i})},` : "NULL, 0},"));
  writeFileSync(out, `/* Made by app/console/build.mjs. */
#include "console_files.h"

${arrays.join("\n")}
const struct console_file console_files[] = {
${rows.join("\n")}
};
const unsigned int num_console_files = ${files.length};
`);
}

copySources();
fetchPackages();
bundle();
pack();
