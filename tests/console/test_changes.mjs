// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_changes.mjs STAGD HEAP-USER - changes by the console: values, partitions and their rights, stores, targets, logical units, heaps. What stagd
 * refuses is shown with its message, and the form stays open.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, writeSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { assert, beAccessible, notScrollSideways, open, play, until } from "./stage.mjs";

const json = { "Content-Type": "application/json" };
const row = (page, table, text) => page.getByRole("table", { name: table }).locator("tbody tr", { hasText: text });
const dialog = (page) => page.getByRole("dialog");
const gone = (page) => dialog(page).waitFor({ state: "detached" });

/* Fills each field by its label. */
async function fill(page, fields) {
  for (const [label, value] of Object.entries(fields)) await dialog(page).getByLabel(label, { exact: true }).fill(value);
}

/* Shows the fields that most people leave as they are. */
const unfold = (page) => dialog(page).getByText("More options").click();

/* The labels of the fields that a form shows at first. */
const labelsOf = (page) => dialog(page).locator("label:visible").allTextContents();

const press = (page, name) => dialog(page).getByRole("button", { name, exact: true }).click();

async function refused(page, words) {
  await dialog(page).getByRole("alert").filter({ hasText: words }).waitFor();
}

/* A process with a heap that executes commands, one a line. */
class HeapUser {
  constructor(name) {
    this.child = spawn(resolve(process.argv[3]), [name], { stdio: ["pipe", "pipe", "inherit"] });
    this.said = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  }

  async readLine() {
    assert.equal((await this.said.next()).value, "ok");
  }

  async command(...lines) {
    for (const line of lines) {
      this.child.stdin.write(`${line}\n`);
      await this.readLine();
    }
  }

  async kill() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = once(this.child, "exit");
    this.child.kill("SIGKILL");
    await gone;
  }
}

await play({
  async a_value_is_put_shown_changed_and_removed(stage) {
    const page = await stage.at("pool");
    await page.getByRole("button", { name: "Put a value" }).click();
    await beAccessible(page, "put a value");
    await fill(page, { Name: "greeting", Value: "hello, world" });
    await press(page, "Store it");
    await gone(page);
    await page.getByRole("button", { name: "greeting", exact: true }).click();
    await dialog(page).getByText("hello, world").waitFor();
    await press(page, "Edit");
    await fill(page, { Value: "good morning" });
    await press(page, "Store it");
    await gone(page);
    assert.equal(await (await stage.world.ask("GET", "/pools/shop/values/greeting")).text(), "good morning");
    await page.getByRole("button", { name: "Remove greeting" }).click();
    await press(page, "Remove it");
    await gone(page);
    await until("it is gone", async () => (await stage.world.get("/pools/shop/values")).values.every((v) => v.name !== "greeting"));
  },

  async an_existing_value_is_not_overwritten_by_accident(stage) {
    await stage.world.put("taken", "mine");
    const page = await stage.at("pool");
    await page.getByRole("button", { name: "Put a value" }).click();
    await fill(page, { Name: "taken", Value: "yours" });
    await press(page, "Store it");
    await refused(page, "a value of this name exists");
    await press(page, "Cancel");
    await page.getByRole("button", { name: "taken", exact: true }).click();
    await press(page, "Edit");
    await stage.world.put("taken", "changed meanwhile");
    await fill(page, { Value: "yours" });
    await press(page, "Store it");
    await refused(page, "another version");
    await press(page, "Cancel");
    assert.equal(await (await stage.world.ask("GET", "/pools/shop/values/taken")).text(), "changed meanwhile");
  },

  async changes_by_others_are_shown_even_if_the_count_is_the_same(stage) {
    await stage.world.put("before", "x");
    const page = await stage.at("pool");
    await page.getByRole("button", { name: "before", exact: true }).waitFor();
    await Promise.all([stage.world.ask("DELETE", "/pools/shop/values/before"), stage.world.put("behind", "x")]);
    await page.getByRole("button", { name: "behind", exact: true }).waitFor();
    await page.getByRole("button", { name: "before", exact: true }).waitFor({ state: "detached" });
  },

  async bytes_are_shown_as_bytes(stage) {
    await stage.world.put("raw", new Uint8Array([0, 1, 2, 254, 255, 65]));
    const page = await stage.at("pool");
    await page.getByRole("button", { name: "raw", exact: true }).click();
    await dialog(page).getByText("00 01 02 fe ff 41").waitFor();
    await page.keyboard.press("Escape");
    await gone(page);
  },

  async many_values_are_paged(stage) {
    for (let i = 0; i < 60; i++) await stage.world.put(`many-${i}`, "x");
    const page = await stage.at("pool");
    const rows = page.getByRole("table", { name: "Values of pool shop" }).locator("tbody tr");
    await until("a first page", async () => (await rows.count()) === 50);
    await page.getByRole("button", { name: "Show more" }).click();
    await until("all", async () => (await rows.count()) >= 60);
  },

  async the_filter_finds_values_that_are_not_loaded(stage) {
    const { world } = stage;
    for (let i = 0; i < 60; i++) await world.put(`some-${i}`, "x");
    const shown = new Set((await world.get("/pools/shop/values?limit=50")).values.map((v) => v.name));
    const later = Array.from({ length: 60 }, (_, i) => `some-${i}`).find((name) => !shown.has(name));
    await stage.at("storage"); /* so that the list begins anew */
    const page = await stage.at("pool");
    const rows = page.getByRole("table", { name: "Values of pool shop" }).locator("tbody tr");
    const filter = page.getByRole("searchbox", { name: "Filter all values by name" });
    await until("a first page", async () => (await rows.count()) === 50);
    assert.equal(await page.getByRole("button", { name: later, exact: true }).count(), 0, `${later} is on another page`);
    await filter.fill(later.toUpperCase());
    await page.getByRole("button", { name: later, exact: true }).waitFor();
    await page.getByText(/^\d+ of \d+ match$/).waitFor();
    await filter.fill("some-?");
    await until("those with one digit", async () => (await rows.count()) === 10);
    await filter.fill("no such value");
    await page.getByText("No value matches").waitFor();
    await filter.fill("");
    await until("a first page again", async () => (await rows.count()) === 50);
    for (let i = 0; i < 60; i++) await world.ask("DELETE", `/pools/shop/values/some-${i}`);
  },

  async forms_show_a_beginner_a_name_and_a_size(stage) {
    const shows = async (button, labels) => {
      const page = stage.shared;
      await page.getByRole("button", { name: button, exact: true }).click();
      await dialog(page).getByText("More options").waitFor();
      assert.deepEqual(await labelsOf(page), labels, button);
      await unfold(page);
      assert.ok((await labelsOf(page)).length > labels.length, `${button}, unfolded`);
      await beAccessible(page, button);
      await press(page, "Cancel");
      await gone(page);
    };
    await stage.at("pool");
    await shows("Serve a pool", ["Name", "Size", "Create a pool", "Join an existing pool"]);
    await stage.at("storage");
    await shows("Serve a store", ["Name", "Size"]);
    await shows("New partition", ["Name", "Size"]);
    await shows("New target", ["Name", "Backed by"]);
    await shows("Add a LUN", ["Backed by"]);
  },

  async a_pool_is_created_used_and_removed(stage) {
    const page = await stage.at("pool");
    await page.getByRole("button", { name: "Serve a pool" }).click();
    await beAccessible(page, "the form of a new pool");
    await unfold(page);
    await fill(page, { Name: "shop", Node: "one", Size: "2M", Port: "0", "Memory address": "0x7e9000000000" });
    await press(page, "Serve it");
    await refused(page, "pool 'shop' already exists");
    await fill(page, { Name: "shed", Size: "much" });
    await press(page, "Serve it");
    await refused(page, /size/);
    await fill(page, { Size: "2M" });
    await press(page, "Serve it");
    await gone(page);
    await page.getByRole("heading", { name: "Pool shed", level: 1 }).waitFor();
    const made = await stage.world.get("/pools/shed");
    assert.deepEqual([made.kind, made.node, made.primary, made.size], ["served", "one", "one", 2 << 20]);
    await page.getByRole("button", { name: "Put a value" }).click();
    await fill(page, { Name: "spade", Value: "rusty" });
    await press(page, "Store it");
    await gone(page);
    assert.equal(await (await stage.world.ask("GET", "/pools/shed/values/spade")).text(), "rusty");
    await page.getByRole("button", { name: "Stop serving pool shed" }).click();
    await beAccessible(page, "stop serving a pool");
    await fill(page, { "Type shed to confirm": "shed" });
    await press(page, "Stop serving it");
    await refused(page, /only copy/);
    await dialog(page).getByLabel(/Even if this is the only copy/).check();
    await press(page, "Stop serving it");
    await gone(page);
    await assert.rejects(stage.world.get("/pools/shed"), /no_such_pool/);
    await page.getByRole("heading", { name: "Pool shop", level: 1 }).waitFor();
  },

  async an_existing_pool_is_joined_and_left(stage) {
    const { world } = stage;
    const roleOf = async (name) => (await world.pool()).nodes.find((n) => n.name === name)?.role;
    const page = await stage.at("pool");
    await page.getByRole("button", { name: "Serve a pool" }).click();
    await dialog(page).getByText("Join an existing pool").click();
    await unfold(page);
    await beAccessible(page, "the form of a pool to join");
    await fill(page, { Name: "branch", Node: "c", Roll: "nowhere", "File of secrets": join(world.dir, "secrets"), Address: "127.0.0.1", Port: "0" });
    await press(page, "Serve it");
    await refused(page, /roll/);
    await fill(page, { Roll: `file:${join(world.dir, "roll")}`, Heartbeat: "20ms", Lease: "1s", Promote: "900ms" });
    await press(page, "Serve it");
    await refused(page, /promote|lease/);
    await fill(page, { Promote: "1200ms" });
    await press(page, "Serve it");
    await gone(page);
    await until("c is a standby", async () => (await roleOf("c")) === "standby");
    await page.getByRole("button", { name: "Stop serving pool branch" }).click();
    await fill(page, { "Type branch to confirm": "branch" });
    await press(page, "Stop serving it");
    await gone(page);
    await until("c is gone", async () => (await roleOf("c")) === "unreachable");
    await world.ask("DELETE", "/pools/shop/nodes/c");
  },

  async a_partition_is_created_with_rights(stage) {
    const page = await stage.at("storage");
    await page.getByRole("button", { name: "New partition" }).click();
    await fill(page, { Name: "goods", Size: "4M" });
    await press(page, "Create it");
    await refused(page, /goods/);
    await fill(page, { Name: "box", Size: "much" });
    await press(page, "Create it");
    await refused(page, /size/);
    await unfold(page);
    await fill(page, { Size: "4M", "Cache, ms": "250" });
    await dialog(page).getByText("Durable", { exact: true }).click();
    await press(page, "Add a right");
    await dialog(page).getByLabel("Peer or user").selectOption("net");
    await fill(page, { Network: "10.0.0.0/33" });
    await dialog(page).getByLabel("Access").selectOption("read");
    await press(page, "Create it");
    await refused(page, /10\.0\.0\.0\/33/);
    await fill(page, { Network: "10.0.0.0/8" });
    await press(page, "Add a right");
    await press(page, "Move right 2 up");
    await beAccessible(page, "the form of a partition");
    await press(page, "Create it");
    await gone(page);
    const made = await stage.world.get("/stores/disk/partitions/box");
    assert.deepEqual([made.size, made.level, made.cache_ms, made.rights], [4 << 20, "durable", 250, ["local:write", "net:10.0.0.0/8:read"]]);
    await row(page, "Partitions of store disk", "box").getByText("net:10.0.0.0/8:read").waitFor();
  },

  async a_partition_is_changed(stage) {
    const page = await stage.at("storage");
    await row(page, "Partitions of store disk", "box").getByRole("button", { name: "Change box" }).click();
    await fill(page, { Size: "1M" });
    await press(page, "Change it");
    await refused(page, /shrink|smaller|grow/i);
    await unfold(page);
    await fill(page, { Size: "6M", Name: "crate" });
    await dialog(page).getByText("Visible", { exact: true }).click();
    await dialog(page).getByLabel("Order").selectOption("any");
    await press(page, "Remove right 2");
    await press(page, "Change it");
    await gone(page);
    const now = await stage.world.get("/stores/disk/partitions/crate");
    assert.deepEqual([now.size, now.level, now.order, now.rights], [6 << 20, "visible", "any", ["local:write"]]);
  },

  async a_partition_is_removed_only_if_its_name_is_typed(stage) {
    const page = await stage.at("storage");
    await page.getByRole("button", { name: "Remove crate" }).click();
    const go = dialog(page).getByRole("button", { name: "Remove it" });
    assert.ok(await go.isDisabled());
    await fill(page, { "Type crate to confirm": "crat" });
    assert.ok(await go.isDisabled());
    await fill(page, { "Type crate to confirm": "crate" });
    await go.click();
    await gone(page);
    await row(page, "Partitions of store disk", "crate").waitFor({ state: "detached" });
  },

  async a_written_partition_is_removed_only_if_that_is_ticked(stage) {
    const { world } = stage;
    await world.ask("POST", "/stores/disk/partitions", JSON.stringify({ name: "kept", size: "1M" }), { "Content-Type": "application/json" });
    const file = openSync(join(world.dir, "disk.store"), "r+");
    writeSync(file, "data", (await world.get("/stores/disk/partitions/kept")).offset);
    closeSync(file);
    const page = await stage.at("storage");
    await page.getByRole("button", { name: "Remove kept" }).click();
    await fill(page, { "Type kept to confirm": "kept" });
    await press(page, "Remove it");
    await refused(page, /has been written/);
    await dialog(page).getByLabel(/Even if it was written/).check();
    await press(page, "Remove it");
    await gone(page);
    await row(page, "Partitions of store disk", "kept").waitFor({ state: "detached" });
  },

  async a_partition_in_use_stays(stage) {
    const page = await stage.at("storage");
    await page.getByRole("button", { name: "Remove goods" }).click();
    await fill(page, { "Type goods to confirm": "goods" });
    await press(page, "Remove it");
    await refused(page, /use/);
    await press(page, "Cancel");
    await gone(page);
  },

  async a_store_is_served_checked_grown_and_removed(stage) {
    const page = await stage.at("storage");
    await page.getByRole("button", { name: "Serve a store" }).click();
    await unfold(page);
    await fill(page, { Name: "more", "File, block device, or mem:NAME": "/no/such/directory/x", Size: "16M", Port: "0" });
    await press(page, "Serve it");
    await refused(page, /\/no\/such\/directory/);
    await fill(page, { "File, block device, or mem:NAME": join(stage.world.dir, "more.store") });
    await press(page, "Serve it");
    await gone(page);
    const card = page.getByRole("region", { name: "Store more" });
    await card.getByText("No partition yet").waitFor();
    await card.getByRole("button", { name: "Check" }).click();
    await page.getByText("Store more has no fault").waitFor();
    await card.getByRole("button", { name: "Grow" }).click();
    await fill(page, { "New size": "8M" });
    await press(page, "Grow it");
    await refused(page, /./);
    await fill(page, { "New size": "24M" });
    await press(page, "Grow it");
    await gone(page);
    await until("it is larger", async () => (await stage.world.get("/stores/more")).size === 24 << 20);
    await card.getByRole("button", { name: "Stop serving store more" }).click();
    await fill(page, { "Type more to confirm": "more" });
    await press(page, "Stop serving it");
    await gone(page);
    await card.waitFor({ state: "detached" });
  },

  async services_of_the_main_file_cannot_be_removed(stage) {
    const page = await stage.at("storage");
    await page.getByRole("button", { name: "Stop serving store disk" }).click();
    await fill(page, { "Type disk to confirm": "disk" });
    await press(page, "Stop serving it");
    await refused(page, /main\.ini/);
    await press(page, "Cancel");
    await page.getByRole("button", { name: "Remove target disk0" }).click();
    await fill(page, { "Type disk0 to confirm": "disk0" });
    await press(page, "Remove it");
    await refused(page, /main\.ini/);
    await press(page, "Cancel");
  },

  async a_target_is_created_with_logical_units(stage) {
    const page = await stage.at("storage");
    await page.getByRole("button", { name: "New target" }).click();
    await unfold(page);
    await fill(page, { Name: "disk1", "iSCSI name": "not a name", Port: "0" });
    await press(page, "Create it");
    await refused(page, /iqn/);
    await fill(page, { "iSCSI name": "iqn.2026-01.org.example:disk1", Alias: "second" });
    await press(page, "Create it");
    await gone(page);
    const card = page.getByRole("region", { name: "Target disk1" });
    await card.getByText("No logical unit yet").waitFor();
    await card.locator("dt", { hasText: "TLS" }).waitFor();
    await card.getByRole("button", { name: "Add a LUN" }).click();
    await beAccessible(page, "the form of a logical unit");
    await unfold(page);
    await dialog(page).getByLabel("Backed by").selectOption("store:disk/scratch");
    await dialog(page).getByLabel("Read only").check();
    await press(page, "Add it");
    await gone(page);
    await row(page, "Logical units of disk1", "store:disk/scratch").getByText("read only").waitFor();
    await card.getByRole("button", { name: "Add a LUN" }).click();
    await unfold(page);
    await fill(page, { "LUN number": "0" });
    await press(page, "Add it");
    await refused(page, "target disk1 already has a LUN 0");
    await fill(page, { "LUN number": "1" });
    await dialog(page).getByLabel("Backed by").selectOption("file");
    await fill(page, { Path: "/no/such/device" });
    await press(page, "Add it");
    await refused(page, /\/no\/such\/device/);
    await press(page, "Cancel");
    await page.getByRole("button", { name: "Remove LUN 0 of disk1" }).click();
    await press(page, "Remove it");
    await gone(page);
    await card.getByText("No logical unit yet").waitFor();
    await card.getByRole("button", { name: "Remove target disk1" }).click();
    await fill(page, { "Type disk1 to confirm": "disk1" });
    await press(page, "Remove it");
    await gone(page);
    await card.waitFor({ state: "detached" });
  },

  async a_target_has_chap_and_any_unit_of_the_ini_file(stage) {
    const { world } = stage;
    await world.ask("POST", "/stores", JSON.stringify({ name: "aside", path: join(world.dir, "aside.store"), format: true, size: "8M", port: 0 }), json);
    await world.ask("POST", "/stores/aside/partitions", JSON.stringify({ name: "old", size: "1M" }), json);
    await world.ask("DELETE", "/stores/aside");
    const page = await stage.at("storage");
    await page.getByRole("button", { name: "New target" }).click();
    await fill(page, { Name: "vault" });
    await dialog(page).getByLabel("Backed by").selectOption("other");
    await fill(page, { Store: join(world.dir, "aside.store"), Partition: "old" });
    await unfold(page);
    await fill(page, { Port: "0", "LUN number": "16383", "CHAP user": "ann", "CHAP secret": "too short" });
    await dialog(page).getByLabel("Block", { exact: true }).selectOption("4096");
    await dialog(page).getByLabel("Write back").check();
    await dialog(page).getByLabel("TLS").selectOption("required");
    await press(page, "Create it");
    await refused(page, /12 characters/);
    await fill(page, { "CHAP secret": "a secret that is long" });
    await press(page, "Create it");
    await gone(page);
    const made = await world.get("/targets/vault");
    assert.match(made.iqn, /:vault$/, "a name was made for it");
    assert.equal(made.tls, "required");
    const [unit] = made.luns;
    assert.deepEqual([unit.lun, unit.where, unit.block, unit.write_back], [16383, join(world.dir, "aside.store:old"), 4096, true]);
    await row(page, "Logical units of vault", "aside.store:old").waitFor();
    await page.getByRole("button", { name: "Remove LUN 16383 of vault" }).click();
    await press(page, "Remove it");
    await gone(page);
    await world.ask("DELETE", "/targets/vault");
  },

  async a_heap_is_trimmed_reaped_and_removed(stage) {
    const name = `console-${process.pid}`;
    const look = () => stage.world.get(`/heaps/${name}`);
    const user = new HeapUser(name);
    try {
      await user.readLine();
      await user.command("alloc 100000", "alloc 9000000", "free");
      const before = await look();
      const page = await stage.at("memory");
      await page.getByRole("button", { name: `Trim ${name}` }).click();
      await page.getByText(new RegExp(`Heap ${name}: [1-9].* freed`)).waitFor();
      const trimmed = await look();
      assert.deepEqual([trimmed.blocks, trimmed.allocations], [before.blocks - 1, 1], "the empty block goes, the other stays");
      await page.getByRole("button", { name: `Remove heap ${name}` }).click();
      await beAccessible(page, "remove a heap");
      await fill(page, { [`Type ${name} to confirm`]: name });
      await press(page, "Remove it");
      await refused(page, "1 process has it attached");
      await press(page, "Cancel");
      await gone(page);
      await user.kill();
      assert.equal((await look()).allocations, 1, "who was killed has it still");
      await page.getByRole("button", { name: `Reap ${name}` }).click();
      await until("what the dead had is given back", async () => (await look()).allocations === 0);
      await page.getByRole("button", { name: `Remove heap ${name}` }).click();
      await fill(page, { [`Type ${name} to confirm`]: name });
      await press(page, "Remove it");
      await gone(page);
      await assert.rejects(look, /no_such_heap/);
      await page.getByRole("button", { name: `Remove heap ${name}` }).waitFor({ state: "detached" });
    } finally {
      await user.kill();
      await stage.world.ask("DELETE", `/heaps/${name}`).catch(() => {});
    }
  },

  async forms_fit_a_phone(stage) {
    const page = await open(stage.browser, stage.world.url("storage"), { viewport: { width: 360, height: 740 } });
    await page.getByRole("button", { name: "Change goods" }).click();
    await unfold(page);
    await press(page, "Add a right");
    await notScrollSideways(page, "the form of a partition at 360");
    const [wide, room] = await dialog(page).evaluate((d) => [d.scrollWidth, d.clientWidth]);
    assert.ok(wide <= room, `the dialog is ${wide} px wide in ${room}`);
    await beAccessible(page, "a form on a phone");
    await page.context().close();
  },
});
