// SPDX-License-Identifier: BSD-2-Clause
/*
 * console-user.mjs CLAIMS URL - what somebody who only looks at the console sees and presses, in Chromium, after so many claims; TAP.
 *
 * The working directory is the clone in which ./up was typed.
 */
import { execSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { assert, cutNoColumn, launch, notScrollSideways, open, until, visit } from "./stage.mjs";

const [before, url] = process.argv.slice(2);
const state = `${homedir()}/.local/state/stag/up`;
const token = readFileSync(`${state}/main/token`, "utf8").trim();
const PATIENCE_MS = 20000;
const dialog = (page) => page.getByRole("dialog");
const press = (page, name) => page.getByRole("button", { name, exact: true }).click();

const walk = {
  "the page asks for the token, in its middle": async (page) => {
    const box = await page.locator(".gate .card").boundingBox();
    const width = await page.evaluate(() => document.documentElement.clientWidth);
    assert.ok(Math.abs(box.x + box.width / 2 - width / 2) <= 1, `it is at ${JSON.stringify(box)} of ${width} px`);
    await page.getByLabel("Token", { exact: true }).fill(token);
    await press(page, "Open the console");
    await page.locator("#page-title").waitFor();
  },

  "no page is wider than the screen, no column is cut, and each card has a name of its own": async (page) => {
    for (const place of ["overview", "pool", "storage", "connections", "memory", "events", "audit", "about"]) {
      await visit(page, place);
      await notScrollSideways(page, place);
      await cutNoColumn(page, place);
      const names = await page.locator("section.card[aria-labelledby]").evaluateAll((cards) => cards.map((c) => document.getElementById(c.getAttribute("aria-labelledby")).textContent));
      assert.equal(new Set(names).size, names.length, `${place}: ${names.join(" | ")}`);
    }
  },

  "the overview shows the activity": async (page) => {
    await visit(page, "overview");
    await page.getByRole("heading", { name: /Activity/ }).first().waitFor();
    assert.equal(await page.getByText("What moves").count(), 0);
  },

  "the filter finds a value that is not loaded": async (page) => {
    await visit(page, "pool");
    const filter = page.getByRole("searchbox", { name: "Filter all values by name" });
    const rows = page.getByRole("table", { name: "Values of pool shop" }).locator("tbody tr");
    for (const name of ["order-7", "order-42", "order-80"]) {
      await filter.fill(name);
      await page.getByRole("button", { name, exact: true }).waitFor();
    }
    await filter.fill("no such order");
    await until("nothing matches", async () => (await rows.getByRole("button", { name: /^order-/ }).count()) === 0, PATIENCE_MS);
    await filter.fill("");
  },

  "a new partition takes a name and a size": async (page) => {
    await visit(page, "storage");
    await press(page, "New partition");
    await dialog(page).getByLabel("Name", { exact: true }).waitFor();
    assert.deepEqual(await dialog(page).locator("label:visible").allTextContents(), ["Name", "Size"]);
    await dialog(page).getByLabel("Name", { exact: true }).fill("mine");
    await dialog(page).getByLabel("Size", { exact: true }).fill("8M");
    await press(page, "Create it");
    await page.getByRole("cell", { name: "mine", exact: true }).or(page.getByRole("rowheader", { name: "mine" })).first().waitFor();
  },

  "while the daemon is gone, buttons are off, and the page says how to start it": async (page) => {
    await press(page, "New partition");
    for (const name of ["keeper", "main"]) execSync(`kill -9 $(./up --pid ${name})`);
    await dialog(page).getByLabel("Name", { exact: true }).fill("next");
    await dialog(page).getByLabel("Size", { exact: true }).fill("8M");
    const create = dialog(page).getByRole("button", { name: "Create it" });
    await until("the form cannot be sent", () => create.isDisabled(), PATIENCE_MS);
    await page.getByText(/stagd .*--config .*stag\.ini/).first().waitFor();
    const actions = page.locator("main button").filter({ hasText: /^(New |Add a LUN|Serve )/ });
    assert.ok((await actions.count()) >= 3);
    assert.deepEqual(await actions.locator("visible=true").evaluateAll((all) => all.filter((b) => !b.disabled).map((b) => b.textContent)), []);
    execSync("./up --detach");
    await until("the form can be sent", () => create.isEnabled(), PATIENCE_MS);
    await press(page, "Cancel");
  },
};

let claims = Number(before);
let fault;
const browser = await launch();
try {
  const page = await open(browser, url);
  page.setDefaultTimeout(PATIENCE_MS);
  for (const [name, claim] of Object.entries(walk)) {
    claims++;
    try {
      await claim(page);
      assert.deepEqual(page.wrongs.splice(0), [], "errors in the page");
      console.log(`ok ${claims} - ${name}`);
    } catch (error) {
      fault = error;
      console.log(`not ok ${claims} - ${name}\n${String(error.stack).replace(/^/gm, "# ")}`);
      break;
    }
  }
} finally {
  await browser.close();
}
console.log(`1..${claims}`);
process.exit(fault ? 1 : 0);
