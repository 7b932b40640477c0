// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_changes.mjs STAGD HEAP-USER - changes by the console: values, partitions and their rights, stores, targets, logical units, heaps. What stagd
 * refuses is shown with its message, and the form stays open.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { assert, beAccessible, notScrollSideways, open, play, until } from "./stage.mjs";

const row = (page, table, text) => page.getByRole("table", { name: table }).locator("tbody tr", { hasText: text });
const dialog = (page) => page.getByRole("dialog");
const gone = (page) => dialog(page).waitFor({ state: "detached" });

/* Fills each field by its label. */
async function fill(page, fields) {
  for (const [label, value] of Object.entries(fields)) await dialog(page).getByLabel(label, { exact: true }).fill(value);
}

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
    await page.getByRole("searchbox", { name: "Filter values by name" }).fill("many-59");
    await until("one", async () => (await rows.count()) === 1);
  },

  async a_pool_is_created_used_and_removed(stage) {
    const page = await stage.at("pool");
    await page.getByRole("button", { name: "Serve a pool" }).click();
    await beAccessible(page, "the form of a new pool");
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
    await fill(page, { Size: "4M", "Cache, ms": "250" });
    await dialog(page).getByText("Durable", { exact: true }).click();
    await press(page, "Add a right");
    await dialog(page).getByLabel("Who").selectOption("net");
    await fill(page, { Network: "10.0.0.0/33" });
    await dialog(page).getByLabel("May").selectOption("read");
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
    await fill(page, { Name: "disk1", "iSCSI name": "not a name", Port: "0" });
    await press(page, "Create it");
    await refused(page, /iqn/);
    await fill(page, { "iSCSI name": "iqn.2026-01.org.example:disk1", Alias: "second" });
    await press(page, "Create it");
    await gone(page);
    const card = page.getByRole("region", { name: "Target disk1" });
    await card.getByText("No logical unit yet").waitFor();
    await card.getByRole("button", { name: "Add a LUN" }).click();
    await beAccessible(page, "the form of a logical unit");
    await dialog(page).getByLabel("Backed by").selectOption("store:disk/scratch");
    await dialog(page).getByLabel("Read only").check();
    await press(page, "Add it");
    await gone(page);
    await row(page, "Logical units of disk1", "store:disk/scratch").getByText("read only").waitFor();
    await card.getByRole("button", { name: "Add a LUN" }).click();
    await fill(page, { Number: "0" });
    await press(page, "Add it");
    await refused(page, "target disk1 already has a LUN 0");
    await fill(page, { Number: "1" });
    await dialog(page).getByLabel("Backed by").selectOption("");
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
    const page = await open(stage.browser, `${stage.base}/#/storage`, { viewport: { width: 360, height: 740 } });
    await page.getByRole("button", { name: "Change goods" }).click();
    await press(page, "Add a right");
    await notScrollSideways(page, "the form of a partition at 360");
    const [wide, room] = await dialog(page).evaluate((d) => [d.scrollWidth, d.clientWidth]);
    assert.ok(wide <= room, `the dialog is ${wide} px wide in ${room}`);
    await beAccessible(page, "a form on a phone");
    await page.context().close();
  },
});
