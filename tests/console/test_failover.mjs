// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_failover.mjs - what the console shows during failures: of the primary, of stagd, of authentication.
 */
import { assert, beAccessible, open, play, until } from "./stage.mjs";

const TOKEN = "a-token-of-this-test-only-0123456789";

const dialog = (page) => page.getByRole("dialog");
const nodeRow = (page, name) => page.getByRole("table", { name: "Nodes of pool shop" }).locator("tbody tr", { has: page.locator("th", { hasText: new RegExp(`${name}$`) }) });
const roleOf = async (page, name) => (await nodeRow(page, name).locator("td .badge").first().textContent()).trim();

/* Marks the document, to detect a reload of the page. */
const mark = (page) => page.evaluate(() => {
  globalThis.unbroken = true;
});
const isUnbroken = (page) => page.evaluate(() => globalThis.unbroken === true);

/* Waits for a primary and a standby in sync. */
const inSync = (world) => until("both are in sync", async () => {
  const { primary, nodes } = await world.pool();
  const standby = nodes?.find((n) => n.role === "standby");
  return primary && standby && [primary, standby.name];
});

await play({
  async it_prompts_for_a_token({ browser, base }) {
    const page = await open(browser, base);
    await page.getByRole("heading", { name: "stagd requires a token" }).waitFor();
    await beAccessible(page, "the token's prompt");
    for (const width of [1280, 360]) {
      await page.setViewportSize({ width, height: 900 });
      const box = await page.locator(".gate .card").boundingBox();
      assert.ok(Math.abs(box.x + box.width / 2 - (await page.evaluate(() => document.documentElement.clientWidth)) / 2) <= 1, `centred at ${width}: ${JSON.stringify(box)}`);
    }
    await page.getByLabel("Token", { exact: true }).fill("wrong-wrong-wrong-wrong");
    await page.getByRole("button", { name: "Open the console" }).click();
    await page.getByRole("alert").filter({ hasText: "The token is wrong" }).waitFor();
    await page.getByLabel("Token", { exact: true }).fill(TOKEN);
    await page.getByRole("button", { name: "Open the console" }).click();
    await page.getByRole("list", { name: "Nodes of pool shop" }).waitFor();
    await page.reload();
    await page.getByRole("list", { name: "Nodes of pool shop" }).waitFor();
    await page.context().close();
  },

  async a_token_in_the_address_is_used_and_removed_from_it({ browser, base }) {
    const page = await open(browser, `${base}/#token=${TOKEN}`);
    await page.getByRole("list", { name: "Nodes of pool shop" }).waitFor();
    assert.ok(!page.url().includes(TOKEN), page.url());
    await page.evaluate(() => {
      location.hash = "#/about";
    });
    await page.getByRole("button", { name: "Forget the token of this tab" }).click();
    await page.getByRole("heading", { name: "stagd requires a token" }).waitFor();
    await page.context().close();
  },

  async a_failover_is_shown_live(stage) {
    const { world } = stage;
    const page = await stage.at("pool");
    const load = world.load();
    await until("a is primary, b in sync", async () => (await roleOf(page, "a")) === "Primary" && (await roleOf(page, "b")) === "Standby");
    await until("there is load", () => load.count() >= 8);
    await mark(page);
    await world.kill("a");
    await until("the page says that b is primary", async () => (await roleOf(page, "b")) === "Primary");
    await page.getByText(/The primary is b, epoch \d+/).waitFor();
    await until("it is said aloud", async () => /b is now primary of pool shop/.test(await page.locator("#announcer").textContent()));
    await until("a is unreachable", async () => (await roleOf(page, "a")) === "Unreachable");
    assert.ok(await isUnbroken(page), "without a reload");
    const acknowledged = await load.stop();
    for (const [name, text] of acknowledged) {
      const now = Number(await (await world.ask("GET", `/pools/shop/values/${name}`)).text());
      assert.ok(now >= Number(text), `${name} was acknowledged as ${text}, and is ${now}`);
    }
  },

  async an_unreachable_node_is_removed_only_if_its_name_is_typed(stage) {
    const page = await stage.at("pool");
    await page.getByRole("button", { name: "Remove a" }).click();
    const go = dialog(page).getByRole("button", { name: "Remove it" });
    assert.ok(await go.isDisabled());
    await beAccessible(page, "forget a node");
    await dialog(page).getByLabel("Type a to confirm").fill("a");
    await go.click();
    await dialog(page).waitFor({ state: "detached" });
    await until("it is forgotten", async () => (await stage.world.pool()).nodes?.every((n) => n.name !== "a"));
    await nodeRow(page, "a").waitFor({ state: "detached" });
  },

  async a_returning_node_is_shown_joining(stage) {
    const { world } = stage;
    const page = await stage.at("pool");
    world.run("a");
    await until("a is a standby", async () => (await roleOf(page, "a")) === "Standby");
  },

  async a_switchover_shows_each_step(stage) {
    const { world } = stage;
    const page = await stage.at("pool");
    const [from, to] = await inSync(world);
    const load = world.load();
    await mark(page);
    await page.getByRole("button", { name: "Switch over…" }).click();
    await beAccessible(page, "the question before a switch-over");
    await dialog(page).getByLabel("New primary").selectOption(to);
    await dialog(page).getByRole("button", { name: "Switch over" }).click();
    await dialog(page).locator(".step.done", { hasText: `${to} is primary` }).waitFor();
    await until("all four steps are done", async () => (await dialog(page).locator(".step.done").count()) === 4);
    await dialog(page).getByText(`Done. ${to} was primary`).waitFor();
    await beAccessible(page, "a switch-over that is done");
    await until("what stagd said is there", async () => /primary|switched/.test(await dialog(page).locator(".said").textContent()));
    await dialog(page).getByRole("button", { name: "Close", exact: true }).last().click();
    await dialog(page).waitFor({ state: "detached" });
    await until("the table says so too", async () => (await roleOf(page, to)) === "Primary" && (await roleOf(page, from)) === "Standby");
    assert.ok(await isUnbroken(page));
    await load.stop();
  },

  async a_refused_switchover_shows_its_error(stage) {
    const page = await stage.at("pool");
    const [, to] = await inSync(stage.world);
    await page.route("**/switchover", (route) => route.continue({ postData: JSON.stringify({ to: "nobody" }) }));
    await page.getByRole("button", { name: `Make ${to} primary` }).click();
    await dialog(page).getByRole("button", { name: "Switch over" }).click();
    await dialog(page).getByRole("alert").filter({ hasText: "has no node 'nobody'" }).waitFor();
    assert.equal(await dialog(page).locator(".step.failed").count(), 3);
    await page.unroute("**/switchover");
    await page.keyboard.press("Escape");
    await dialog(page).waitFor({ state: "detached" });
  },

  async loss_and_return_of_stagd_are_shown(stage) {
    const { world } = stage;
    const page = await stage.at("storage");
    await page.getByRole("table", { name: "Partitions of store disk" }).waitFor();
    await mark(page);
    await page.getByRole("button", { name: "New partition" }).click();
    await dialog(page).getByLabel("Name", { exact: true }).fill("x");
    await dialog(page).getByLabel("Size", { exact: true }).fill("1M");
    await world.kill("main");
    const banner = page.locator(".banner[role=alert]", { hasText: "stagd does not respond" });
    await banner.waitFor();
    const create = dialog(page).getByRole("button", { name: "Create it" });
    await until("the form cannot be sent", () => create.isDisabled());
    await beAccessible(page, "the banner");
    await banner.getByText(`${world.stagd} --config ${world.dir}/main.ini`).waitFor();
    await page.getByText("Not connected").waitFor();
    const on = await page.locator("main .button:not(:disabled), main .icon-button:not(:disabled)")
      .evaluateAll((buttons) => buttons.filter((b) => !b.closest("dialog")).map((b) => b.getAttribute("aria-label") ?? b.textContent));
    assert.deepEqual(on, [], "buttons that need stagd are off");
    assert.ok(await dialog(page).getByRole("button", { name: "Cancel" }).isEnabled());
    assert.ok(await page.getByRole("table", { name: "Partitions of store disk" }).isVisible(), "what was seen stays");
    world.run("main");
    await banner.waitFor({ state: "detached" });
    await world.ask("POST", "/stores/disk/partitions", JSON.stringify({ name: "afterwards", size: "1M" }), { "Content-Type": "application/json" });
    await page.locator("tbody tr", { hasText: "afterwards" }).waitFor();
    await create.click();
    await dialog(page).waitFor({ state: "detached" });
    await page.getByRole("table", { name: "Partitions of store disk" }).locator("tbody tr", { has: page.locator("th", { hasText: /^x$/ }) }).waitFor();
    assert.ok(await isUnbroken(page));
    await page.evaluate(() => {
      location.hash = "#/events";
    });
    await page.locator(".events li", { hasText: "x" }).first().waitFor();
  },

  async values_cannot_be_opened_while_stagd_is_gone(stage) {
    const { world } = stage;
    await inSync(world);
    await world.put("kept", "x");
    const page = await stage.at("pool");
    const name = page.getByRole("button", { name: "kept", exact: true });
    await name.waitFor();
    assert.ok(await name.isEnabled());
    await world.kill("main");
    await until("its name is off", () => name.isDisabled());
    await beAccessible(page, "values without stagd");
    world.run("main");
    await until("its name is on again", () => name.isEnabled());
  },
}, { token: TOKEN });
