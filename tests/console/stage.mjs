// SPDX-License-Identifier: BSD-2-Clause
/*
 * stage.mjs - common to the console's tests: Chromium, claims in TAP, checks of accessibility.
 */
import assert from "node:assert/strict";
import { accessSync, constants, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { until, World } from "./world.mjs";

export { assert, until };
const PATIENCE_MS = 60000;
export const pages = ["overview", "pool", "storage", "connections", "memory", "events", "audit", "about"];

function skip(why) {
  console.log(`1..0 # SKIP ${why}`);
  process.exit(77);
}

function findChromium() {
  for (const dir of (process.env.PATH ?? "").split(delimiter))
    for (const name of ["chromium", "chromium-browser", "google-chrome"])
      try {
        accessSync(join(dir, name), constants.X_OK);
        return join(dir, name);
      } catch {
        continue;
      }
  return skip("chromium is missing: apt-get install chromium");
}

const modules = createRequire(`${process.env.STAG_CONSOLE_MODULES}/`);
const flags = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export async function launch() {
  const { chromium } = modules("playwright-core");
  return chromium.launch({ executablePath: findChromium(), headless: true, args: process.getuid() === 0 ? [...flags, "--no-sandbox"] : flags });
}

/* Opens a page, and collects its errors of scripts and of the content security policy. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light", reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  page.wrongs = [];
  page.on("pageerror", (error) => page.wrongs.push(error.message));
  page.on("console", (line) => {
    if (line.type() === "error" && !/Failed to load resource/.test(line.text())) page.wrongs.push(line.text());
  });
  await page.goto(url);
  return page;
}

export async function visit(page, place) {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/${place}`);
  await page.locator("#page-title").waitFor();
}

const axe = () => readFileSync(modules.resolve("axe-core/axe.min.js"), "utf8");

const everything = { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] };
const colours = { type: "rule", values: ["color-contrast"] };

/* Checks accessibility (axe). The page's policy allows no other scripts, so axe is evaluated from outside. */
async function judgedBy(page, where, runOnly) {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(axe());
  const { violations } = await page.evaluate((rules) => globalThis.axe.run(document, { resultTypes: ["violations"], runOnly: rules, preload: false, iframes: false }), runOnly);
  const grave = violations.filter((v) => ["serious", "critical"].includes(v.impact));
  assert.deepEqual(grave.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).join(" | ")}`), [], `axe on ${where}`);
}

export const beAccessible = (page, where) => judgedBy(page, where, everything);
/* Checks contrast only: in the dark theme all else is the same. */
export const beAccessibleInDark = (page, where) => judgedBy(page, `${where}, dark`, colours);

const LAYOUT_MS = 10000; /* for a page to follow a change of the window */

export async function notScrollSideways(page, where) {
  const widths = () => page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  await until(`${where} fits`, async () => {
    const [wide, room] = await widths();
    assert.ok(wide <= room, `${wide} px wide in ${room}`);
    return true;
  }, LAYOUT_MS);
}

/*
 * Finds texts and buttons that are cut off by their frame: cells of tables, titles of cards and of the page. By their boxes: what is too long on the left
 * does not make its frame scroll.
 */
function findCut() {
  const BLUR = 1; /* px: boxes are fractions, clientWidth is whole */
  const cells = [...document.querySelectorAll(".table-frame :is(td, th[scope=row])")].map((cell) => [cell, cell.closest(".table-frame")]);
  const titles = [...document.querySelectorAll(".card-head > div, .page-head > div")].map((title) => [title, title.closest(".card, main")]);
  const range = document.createRange();
  return [...cells, ...titles].flatMap(([content, frame]) => {
    range.selectNodeContents(content);
    const is = range.getBoundingClientRect();
    const room = frame.getBoundingClientRect();
    const fits = is.width === 0 || (is.left >= room.left - BLUR && is.right <= room.right + BLUR);
    return fits ? [] : [`${content.textContent.slice(0, 80)}: ${is.left} to ${is.right} px in ${room.left} to ${room.right}`];
  });
}

/* Checks that no table is wider than its frame, and that no cell or title is cut: what is cut off is not seen. */
export async function cutNoColumn(page, where) {
  const wide = () => page.locator(".table-frame").evaluateAll((frames) => frames.filter((f) => f.scrollWidth > f.clientWidth)
    .map((f) => `${f.querySelector("caption").textContent}: ${f.scrollWidth} px in ${f.clientWidth}`));
  await until(`nothing is cut on ${where}`, async () => {
    assert.deepEqual([...await wide(), ...await page.evaluate(findCut)], []);
    return true;
  }, LAYOUT_MS);
}

/* Checks the layout of the page that is open on a phone, a tablet and a screen. */
export async function fitEveryScreen(page, where) {
  for (const width of [360, 768, 1920, 1280]) {
    await page.setViewportSize({ width, height: 900 });
    await notScrollSideways(page, `${where} at ${width}`);
    await cutNoColumn(page, `${where} at ${width}`);
  }
}

/*
 * Resources of a claim: the daemons, Chromium, and a page. Most claims share one, since a page costs a second of a loaded machine; after a claim that failed
 * there is a new one.
 */
class Stage {
  constructor(world, browser) {
    Object.assign(this, { world, browser, base: world.base, shared: null });
  }

  async at(place) {
    if (!this.shared) this.shared = await open(this.browser, this.world.url(place));
    else await visit(this.shared, place);
    await this.shared.locator("#page-title").waitFor();
    return this.shared;
  }

  async after(failed) {
    const wrongs = this.shared?.wrongs.splice(0) ?? [];
    const left = (await this.shared?.getByRole("dialog").count()) ?? 0;
    if (failed || left) {
      await this.shared?.context().close();
      this.shared = null;
    }
    if (!failed) assert.deepEqual(wrongs, [], "errors in the page");
  }
}

async function runClaim(stage, claim) {
  try {
    await claim(stage);
    await stage.after(false);
    return null;
  } catch (error) {
    await stage.after(true);
    return String(error.stack ?? error);
  }
}

/* play({name: async (stage) => …}) runs each as a claim. */
export async function play(claims, options = {}) {
  const world = new World(process.argv[2]);
  let browser;
  let n = 0;
  let failed = 0;
  const names = Object.keys(claims).filter((name) => !process.env.STAG_ONLY || name.includes(process.env.STAG_ONLY));
  console.log(`1..${names.length}`);
  try {
    browser = await launch();
    await world.start(options);
    const stage = new Stage(world, browser);
    for (const name of names) {
      const began = Date.now();
      const fault = await runClaim(stage, claims[name]);
      failed += fault !== null;
      console.log(fault === null ? `ok ${++n} - ${name} # ${Date.now() - began} ms` : `not ok ${++n} - ${name}\n${fault.replace(/^/gm, "# ")}`);
    }
  } catch (error) {
    failed++;
    console.log(`Bail out! ${error.message.split("\n")[0]}\n${String(error.stack).replace(/^/gm, "# ")}`);
  }
  if (failed) console.log(world.logs().replace(/^/gm, "# "));
  await browser?.close();
  await world.end();
  process.exit(failed ? 1 : 0);
}
