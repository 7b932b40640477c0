// SPDX-License-Identifier: BSD-2-Clause
/*
 * shots.mjs STAGD STAG DIRECTORY - the pictures of docs/screenshots, from real daemons under load: `ninja screenshots`.
 */
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { launch, open, until } from "./stage.mjs";
import { pause, World } from "./world.mjs";

const [stagd, stag, to] = process.argv.slice(2);
const HISTORY_S = 60; /* of samples for the plots */
const SETTLE_MS = 400;
const PATIENCE_MS = 60000;

const world = new World(stagd, "/tmp/stag-");
const helpers = [];

/* Runs a command in the background until the end. */
function run(...args) {
  helpers.push(spawn(stag, args, { cwd: world.dir, stdio: "ignore" }));
}

function load() {
  const { a, b, store, target } = world.ports;
  run("pool", "load", `admin@127.0.0.1:${a},127.0.0.1:${b}`, "--secret-file", "admin", "--secs", "0", "--clients", "1");
  run("store", "bench", `127.0.0.1:${store}/scratch`, "--op", "read", "--depth", "2", "--secs", "600", "--sleep");
  run("block", "bench", `stag://127.0.0.1:${target}/iqn.2026-01.org.example:disk0/0`, "--op", "mix", "--force", "--depth", "2", "--secs", "600", "--sleep");
}

async function shot(page, name, options = {}) {
  await page.mouse.move(0, 0);
  await pause(SETTLE_MS);
  await page.screenshot({ path: join(to, `${name}.png`), ...options });
  console.log(`${name}.png`);
}

async function look(browser, place, options) {
  const page = await open(browser, world.url(place), options);
  await page.locator("#page-title").waitFor();
  return page;
}

async function switchOver(browser) {
  const page = await look(browser, "pool", { viewport: { width: 1200, height: 860 } });
  await page.getByRole("button", { name: "Switch over…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Switch over" }).click();
  await until("it is done", async () => (await page.locator(".step.done").count()) === 4, PATIENCE_MS);
  await shot(page, "switch-over");
}

async function picture(browser) {
  const wide = { viewport: { width: 1280, height: 900 } };
  const light = await look(browser, "overview", wide);
  await light.locator(".plot").first().waitFor();
  await light.getByText("1 min", { exact: true }).click();
  await shot(light, "light");
  await light.context().close();
  const dark = await look(browser, "storage", { ...wide, colorScheme: "dark" });
  await dark.getByRole("table", { name: "Sessions of disk0" }).waitFor();
  await shot(dark, "dark");
  await dark.context().close();
  const phone = await look(browser, "overview", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 1.5 });
  await phone.locator(".plot").first().waitFor();
  await phone.getByText("1 min", { exact: true }).click();
  await shot(phone, "phone");
  await phone.context().close();
  await switchOver(browser);
}

mkdirSync(to, { recursive: true });
const browser = await launch();
try {
  await world.start();
  for (const [name, text] of [["greeting", "hello, world"], ["cart-1001", '{"items": 3}'], ["session-7f", "signed in"]]) await world.put(name, text);
  load();
  await pause(HISTORY_S * 1000);
  for (const h of helpers) h.kill("SIGSTOP"); /* frees the processor for drawing */
  await picture(browser);
} finally {
  for (const h of helpers) h.kill("SIGKILL");
  await browser.close();
  await world.end();
}
process.exit(0);
