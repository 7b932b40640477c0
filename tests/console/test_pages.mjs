// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_pages.mjs - every page of the console: light, dark, narrow, by keyboard, with a screen reader.
 */
import { assert, beAccessible, beAccessibleInDark, fitEveryScreen, open, pages, play, until, visit } from "./stage.mjs";

/* An element that a page has once its data is loaded. */
const filled = {
  overview: (p) => p.getByRole("list", { name: "Nodes of pool shop" }).getByText("Primary"),
  pool: (p) => p.getByRole("table", { name: "Nodes of pool shop" }).getByText("Primary", { exact: true }),
  storage: (p) => p.getByRole("table", { name: "Partitions of store disk" }).getByText("scratch"),
  connections: (p) => p.getByRole("table", { name: /Queue pairs of stagd/ }).first(),
  memory: (p) => p.getByRole("table", { name: "Regions" }),
  events: (p) => p.locator(".events li").first(),
  audit: (p) => p.getByRole("table", { name: "Records of the audit log" }),
  about: (p) => p.locator(".findings li").first(),
};

const json = { "Content-Type": "application/json" };

async function everyPage(stage, look) {
  await stage.world.ask("POST", "/reload", "{}", json); /* an act for the audit log */
  for (const name of pages) {
    const page = await stage.at(name);
    await filled[name](page).waitFor();
    await look(page, name);
  }
}

/* Changes the answers of the API to a page. */
async function change(page, path, fn) {
  await page.route(`**/api/v1${path}`, async (route) => {
    const fetched = await route.fetch().then(async (response) => ({ response, body: await response.json() })).catch(() => null);
    if (!fetched) return; /* the page is being closed */
    const { response, body } = fetched;
    await route.fulfill({ response, json: response.ok() ? fn(body) : body });
  });
}

const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

await play({
  async every_page_is_accessible_in_light_and_dark(stage) {
    await everyPage(stage, async (page, name) => {
      await beAccessible(page, name);
      await page.emulateMedia({ colorScheme: "dark" });
      await until("dark", () => page.evaluate(() => document.documentElement.dataset.theme === "dark"));
      await beAccessibleInDark(page, name);
      await page.emulateMedia({ colorScheme: "light" });
    });
  },

  async every_page_fits_every_screen(stage) {
    await everyPage(stage, fitEveryScreen);
  },

  /* Other processes choose what they say of themselves, and people the names. */
  async the_longest_values_fit_every_screen({ browser, world }) {
    const page = await open(browser, "about:blank");
    const long = (letter) => letter.repeat(63);
    const address = "[fe80::ffff:ffff:ffff:ffff%enp0s31f6np0]:65535";
    const lengthen = (c) => ({ ...c, program: "p".repeat(64), kind: "remote-memory", local: address, peer: address, tls: { version: "TLSv1.3", cipher: "TLS_AES_256_GCM_SHA384" }, sq: [65535, 65536] });
    const net = "net:2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128:write";
    const heap = { name: long("H"), size: 1 << 20, blocks: 3, block_bytes: 1 << 20, allocations: 7, allocated_bytes: 4096, processes: [], dead_processes: 0 };
    const renameNode = (n) => ({ ...n, name: n.name.toUpperCase().repeat(63), address });
    await change(page, "/connections*", (body) => ({ ...body, connections: body.connections.map(lengthen) }));
    await change(page, "/heaps*", (body) => ({ ...body, heaps: [heap] }));
    await change(page, "/pools", (body) => ({ ...body, pools: body.pools.map((p) => ({ ...p, primary: p.primary?.toUpperCase().repeat(63), nodes: p.nodes?.map(renameNode) })) }));
    await change(page, "/stores", (body) => ({ ...body, stores: body.stores.map((s) => ({ ...s, name: long("S"), partitions: s.partitions.map((p) => ({ ...p, name: long(p.name[0].toUpperCase()), rights: [`user:${long("u")}:read`, net] })) })) }));
    await page.goto(world.url("connections"));
    for (const [place, text] of [["connections", address], ["memory", long("H")], ["storage", net], ["pool", /Make (A{63}|B{63}) primary/], ["overview", long("A")]]) {
      await visit(page, place);
      await page.getByText(text).first().waitFor();
      await fitEveryScreen(page, place);
    }
    await page.context().close();
  },

  async dialogs_with_the_longest_names_fit_a_phone({ browser, world }) {
    const page = await open(browser, "about:blank", { viewport: { width: 360, height: 740 } });
    const name = "S".repeat(63);
    await change(page, "/stores", (body) => ({ ...body, stores: body.stores.map((s) => ({ ...s, name })) }));
    await page.goto(world.url("storage"));
    await page.getByRole("button", { name: `Stop serving store ${name}` }).click();
    const [wide, room] = await page.getByRole("dialog").evaluate((d) => [d.scrollWidth, d.clientWidth]);
    assert.ok(wide <= room, `the dialog is ${wide} px wide in ${room}`);
    await page.context().close();
  },

  /* A browser needs long for thousands of rows that change each second. */
  async many_queue_pairs_are_shown_in_parts({ browser, world }) {
    const page = await open(browser, "about:blank");
    const many = (c) => Array.from({ length: 120 }, (_, i) => ({ ...c, pid: 1, program: "many", qpn: i + 1 }));
    await change(page, "/connections*", (body) => ({ ...body, connections: many(body.connections[0]) }));
    await page.goto(world.url("connections"));
    const rows = page.locator("tbody tr");
    const more = page.getByRole("button", { name: "Show more" });
    await more.waitFor();
    assert.equal(await rows.count(), 50);
    await page.getByRole("button", { name: "Queue pair" }).click();
    await page.getByRole("button", { name: "Queue pair" }).click();
    await until("the order is that of all of them", async () => (await rows.first().locator("th").textContent()) === "120");
    await more.click();
    await until("100 rows", async () => (await rows.count()) === 100);
    await more.click();
    await until("all rows", async () => (await rows.count()) === 120);
    assert.equal(await more.count(), 0);
    await page.context().close();
  },

  async a_phone_has_a_menu({ browser, world }) {
    const page = await open(browser, world.url(), { viewport: { width: 360, height: 740 } });
    const menu = page.getByRole("button", { name: "Open the menu" });
    await menu.click();
    await beAccessible(page, "the menu");
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Storage" }).click();
    await page.getByRole("heading", { name: "Storage", level: 1 }).waitFor();
    await menu.waitFor();
    await page.context().close();
  },

  async colours_follow_the_system_and_the_button({ browser, world }) {
    const page = await open(browser, world.url(), { colorScheme: "dark" });
    await filled.overview(page).waitFor();
    const dark = await background(page);
    await page.emulateMedia({ colorScheme: "light" });
    await until("light", async () => (await background(page)) !== dark);
    const light = await background(page);
    await page.locator("[data-test=theme]").click();
    assert.equal(await background(page), light);
    await page.locator("[data-test=theme]").click();
    await until("dark by the button", async () => (await background(page)) === dark);
    await page.reload();
    await filled.overview(page).waitFor();
    assert.equal(await background(page), dark, "it is remembered");
    await page.context().close();
  },

  /* A browser on a busy machine loses some. */
  async colours_and_layout_follow_without_an_event_of_their_change({ browser, world }) {
    const page = await open(browser, "about:blank");
    await page.addInitScript(() => {
      MediaQueryList.prototype.addEventListener = () => {};
    });
    await page.goto(world.url("storage"));
    await filled.storage(page).waitFor();
    await page.emulateMedia({ colorScheme: "dark" });
    await until("dark", () => page.evaluate(() => document.documentElement.dataset.theme === "dark"));
    await page.setViewportSize({ width: 360, height: 740 });
    await page.locator(".table-frame.blocks").first().waitFor();
    await page.context().close();
  },

  async it_can_be_used_by_keyboard_alone({ browser, world }) {
    const page = await open(browser, world.url());
    const focused = () => page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.getAttribute("aria-label"));
    await filled.overview(page).waitFor();
    await page.keyboard.press("Tab");
    assert.equal(await focused(), "Skip to content");
    await page.keyboard.press("Enter");
    assert.equal(await focused(), "Overview");
    await page.keyboard.press("g");
    await page.keyboard.press("s");
    await page.getByRole("heading", { name: "Storage", level: 1 }).waitFor();
    await until("the title has the focus", async () => (await focused()) === "Storage");
    await page.keyboard.press("Tab");
    assert.equal(await focused(), "Serve a store");
    const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(ring, "solid", "the focus is seen");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Serve a store" }).waitFor();
    await beAccessible(page, "a dialog");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    assert.equal(await focused(), "Serve a store", "the focus comes back");
    await page.keyboard.press("g");
    await page.keyboard.press("e");
    await page.getByRole("heading", { name: "Events", level: 1 }).waitFor();
    await until("the title has the focus", async () => (await focused()) === "Events");
    await page.keyboard.press("/");
    assert.equal(await focused(), "Search events");
    await page.keyboard.press("Tab");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard" }).waitFor({ state: "detached" });
    await page.locator("#page-title").focus();
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
    await page.keyboard.press("Escape");
    await page.context().close();
  },

  async plots_update_pause_and_have_tables(stage) {
    const load = stage.world.load();
    const page = await stage.at("overview");
    const plot = page.getByRole("img", { name: /^Pool changes/ });
    const words = () => plot.getAttribute("aria-label");
    await until("changes are counted", async () => /now [^0]/.test(await words()));
    const before = await words();
    await until("the plot moves", async () => (await words()) !== before);
    await page.getByRole("button", { name: "Pause" }).click();
    const held = await words();
    await page.waitForResponse((r) => r.url().includes("/history"));
    await page.waitForResponse((r) => r.url().includes("/history"));
    assert.equal(await words(), held, "a pause holds it");
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByText("10 min", { exact: true }).click();
    assert.match(await words(), /the last 10 min/);
    await page.getByRole("button", { name: "Pool changes as a table" }).click();
    await page.getByRole("table", { name: /Pool changes/ }).getByRole("row").nth(1).waitFor();
    await load.stop();
  },

  async each_card_has_a_name_of_its_own(stage) {
    await everyPage(stage, async (page, name) => {
      const names = await page.locator("section.card").evaluateAll((cards) => cards.filter((c) => c.getAttribute("aria-labelledby"))
        .map((c) => document.getElementById(c.getAttribute("aria-labelledby")).textContent));
      assert.equal(new Set(names).size, names.length, `${name}: ${names.join(" | ")}`);
    });
  },

  async connections_are_filtered_and_sorted(stage) {
    const page = await stage.at("connections");
    /* The table of a node of the pool: its connection to the other node stays, while those of clients come and go. */
    const table = page.getByRole("table", { name: new RegExp(`process ${stage.world.processes.get("a").pid}$`) });
    const head = table.getByRole("columnheader", { name: "Queue pair" });
    await table.getByRole("columnheader", { name: "TLS" }).waitFor();
    await table.getByRole("cell", { name: "off", exact: true }).first().waitFor();
    await table.getByRole("button", { name: "Queue pair" }).click();
    await until("sorted", async () => (await head.getAttribute("aria-sort")) === "ascending");
    await page.getByRole("searchbox").fill("RTS");
    await table.waitFor();
    await page.getByRole("searchbox").fill("no such thing");
    await page.getByText("No match").waitFor();
  },

  async regions_are_filtered(stage) {
    const page = await stage.at("memory");
    await filled.memory(page).waitFor();
    const rows = page.getByRole("table", { name: "Regions" }).locator("tbody tr");
    const all = await rows.count();
    await page.getByText("Remote access").click();
    await until("fewer, and all of them with remote access", async () => {
      const texts = await rows.allTextContents();
      return texts.length <= all && texts.length > 0 && texts.every((t) => t.includes("remote"));
    });
    await page.getByRole("searchbox").fill("0xnothing");
    await page.getByText("No match").waitFor();
  },

  async events_are_live_and_searchable(stage) {
    const { world } = stage;
    const page = await stage.at("events");
    await filled.events(page).waitFor();
    await page.getByText("Live, newest first").waitFor();
    await world.ask("POST", "/stores/disk/partitions", JSON.stringify({ name: "seen-live", size: "1M" }), { "Content-Type": "application/json" });
    await page.locator(".events li", { hasText: "seen-live" }).first().waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await world.ask("DELETE", "/stores/disk/partitions/seen-live");
    await page.getByRole("button", { name: /Resume \(\d+ new\)/ }).click();
    await page.getByRole("searchbox").fill("seen-live removed");
    await until("what was searched for", async () => {
      const texts = await page.locator(".events li").allTextContents();
      return texts.length > 0 && texts.every((t) => t.includes("seen-live"));
    });
    await page.getByRole("searchbox").fill("");
    await page.getByText("Errors", { exact: true }).click();
    await until("only errors", async () => (await page.locator(".events li .badge").allTextContents()).every((t) => t === "err"));
  },

  async events_are_polled_if_the_stream_is_blocked({ browser, world }) {
    const page = await open(browser, "about:blank");
    await page.route("**/events/stream*", (route) => route.fulfill({ status: 502, body: "" }));
    await page.goto(world.url("events"));
    await page.getByText("Polled every second").waitFor();
    await world.ask("POST", "/stores/disk/partitions", JSON.stringify({ name: "asked-for", size: "1M" }), { "Content-Type": "application/json" });
    await page.locator(".events li", { hasText: "asked-for" }).first().waitFor();
    await world.ask("DELETE", "/stores/disk/partitions/asked-for");
    await page.context().close();
  },

  async the_audit_log_shows_who_did_what(stage) {
    const { world } = stage;
    const page = await stage.at("audit");
    await world.ask("POST", "/stores/disk/partitions", JSON.stringify({ name: "noted", size: "1M" }), json);
    await world.ask("DELETE", "/stores/disk/partitions/noted");
    await fetch(`${world.base}/api/v1/stores/disk/partitions/noted`, { method: "DELETE", headers: { Authorization: "Bearer of-nothing" } });
    const rows = page.getByRole("table", { name: "Records of the audit log" }).locator("tbody tr");
    await page.getByRole("searchbox").fill("partitions/noted");
    await until("the removal and the refusal, newest first", async () => {
      const texts = await rows.allTextContents();
      return texts.length === 2 && texts[0].includes("refused") && texts[0].includes("the token is wrong") && texts[1].includes("allowed") && texts[1].includes("api");
    });
    await page.getByText("Refused", { exact: true }).click();
    await until("only refusals", async () => (await rows.count()) === 1);
    await page.getByRole("searchbox").fill("no such thing");
    await page.getByText("No match").waitFor();
  },

  async who_may_only_look_is_told_so_once({ browser, world }) {
    const { token } = await (await world.ask("POST", "/tokens", JSON.stringify({ name: "looker", role: "look" }), json)).json();
    const page = await open(browser, `${world.base}/#token=${token}&/audit`);
    let asked = 0;
    page.on("request", (r) => { asked += r.url().includes("/audit"); });
    await page.getByText("this requires the role administer").waitFor();
    for (let i = 0; i < 2; i++) await page.waitForResponse((r) => r.url().includes("/pools"));
    assert.ok(asked <= 1, "the refused request was repeated");
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Pool" }).click();
    await filled.pool(page).waitFor();
    await page.context().close();
    await world.ask("DELETE", "/tokens/looker");
  },

  async about_shows_the_daemon_and_reloads_it(stage) {
    const page = await stage.at("about");
    await page.getByRole("table", { name: "Daemons" }).locator("tbody tr").nth(2).waitFor();
    await page.getByRole("button", { name: "Reload the configuration" }).click();
    await page.getByText("stagd has reloaded its configuration").waitFor();
  },

  async reduced_motion_is_respected(stage) {
    const load = stage.world.load();
    const page = await stage.at("overview");
    const moving = () => page.evaluate(() => document.getAnimations().filter((a) => a.playState === "running").length);
    await page.locator(".picture.flowing").waitFor();
    assert.equal(await moving(), 0);
    await page.emulateMedia({ reducedMotion: "no-preference" });
    await until("what flows moves", async () => (await moving()) > 0);
    await page.emulateMedia({ reducedMotion: "reduce" });
    await load.stop();
  },
});
