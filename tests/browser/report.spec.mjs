// report.html of a quickstart run, and of two runs side by side.
import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { contrast, fits, kvlab, launch, open, picture } from "./browser.mjs";

let browser, folder, run, report;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "kvlab-browser-"));
  // REPORT_RUN: the folder of a run that is there already.
  if (process.env.REPORT_RUN) {
    run = join(folder, "run");
    cpSync(process.env.REPORT_RUN, run, { recursive: true });
    kvlab("report", run);
  } else {
    kvlab("compare", "configs/experiments/quickstart.toml", "--runs", folder, "--set", "repeats=1");
    run = join(folder, readdirSync(folder)[0]);
  }
  report = join(run, "report.html");
  browser = await launch();
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

const column = (page, n) =>
  page.$$eval(`table[data-name="result"] tbody tr > :nth-child(${n})`, (cells) => cells.map((cell) => cell.dataset.key));
const heading = (page, text) => page.locator('table[data-name="result"] thead th', { hasText: text }).first();
const place = (page, text) =>
  page.$$eval('table[data-name="result"] thead th', (heads, text) => heads.findIndex((h) => h.textContent.replace(/\s+/g, " ").includes(text)) + 1, text);

test("it renders: an answer, a table, figures with titles and captions", async () => {
  const { page, done } = await open(browser, report);
  assert.match(await page.locator("#verdict .pick").innerText(), /^Use ./);
  assert.ok((await page.locator("#tiles > div").count()) >= 4);
  const rows = await page.locator('table[data-name="result"] tbody tr').count();
  assert.ok(rows > 3, `${rows} rows`);
  const names = await page.$$eval("figure", (figures) => figures.map((figure) => figure.id));
  for (const name of ["figure-quality", "figure-memory", "figure-operations"]) assert.ok(names.includes(name), `${name} in ${names}`);
  for (const figure of await page.locator("figure").all()) {
    assert.ok((await figure.locator("h3").innerText()).length > 5);
    assert.ok((await figure.locator("figcaption").innerText()).length > 40);
    const box = await figure.locator(".plot.wide svg").boundingBox();
    assert.ok(box.width > 500 && box.height > 100, JSON.stringify(box));
    assert.ok(await figure.locator(".plot.wide svg").getAttribute("aria-label"));
  }
  await fits(page);
  await done();
});

test("it sorts by a click, and back", async () => {
  const { page, done } = await open(browser, report);
  const n = await place(page, "bytes/ token");
  const before = await column(page, n);
  await heading(page, "bytes/ token").locator("button").click();
  const up = await column(page, n);
  assert.deepEqual(up.filter(Boolean).map(Number), before.filter(Boolean).map(Number).sort((a, b) => a - b));
  assert.equal(await heading(page, "bytes/ token").getAttribute("aria-sort"), "ascending");
  await heading(page, "bytes/ token").locator("button").click();
  assert.deepEqual((await column(page, n)).filter(Boolean).map(Number), up.filter(Boolean).map(Number).reverse());
  assert.equal(await heading(page, "bytes/ token").getAttribute("aria-sort"), "descending");
  assert.equal(await page.locator('table[data-name="result"] th[aria-sort="none"]').count(), (await page.locator('table[data-name="result"] thead th').count()) - 1);
  await done();
});

test("it sorts by the keyboard, and the focus is seen", async () => {
  const { page, done } = await open(browser, report);
  await page.locator("#result .scroll").first().focus();
  await page.keyboard.press("Tab");
  const focused = await page.evaluate(() => {
    const at = document.activeElement;
    return { name: at.tagName, text: at.textContent, outline: getComputedStyle(at).outlineStyle };
  });
  assert.deepEqual(focused, { name: "BUTTON", text: "cell", outline: "solid" });
  await page.keyboard.press("Enter");
  const names = await column(page, 1);
  const sorted = [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  assert.deepEqual(names, sorted);
  await page.keyboard.press("Space");
  assert.deepEqual(await column(page, 1), sorted.reverse());
  await done();
});

test("the heading of a table stays in sight", async () => {
  const { page, done } = await open(browser, report, { height: 400 });
  const scroll = page.locator("#result .scroll").first();
  await scroll.evaluate((element) => element.scrollTo(200, 150));
  const [top, head, first] = await scroll.evaluate((element) => {
    const box = (e) => e.getBoundingClientRect();
    const row = element.querySelector("tbody tr:nth-child(5) th");
    return [box(element), box(element.querySelector("thead th:nth-child(3)")), box(row)];
  });
  assert.ok(Math.abs(head.top - top.top) < 3, `${head.top} and ${top.top}`);
  assert.ok(Math.abs(first.left - top.left) < 3, `${first.left} and ${top.left}`);
  await done();
});

test("it answers the question of the budget, with and without its script alike", async () => {
  const { page, done } = await open(browser, report);
  const still = await open(browser, report, { javaScriptEnabled: false });
  const text = (page, id) => page.locator(id).innerText();
  for (const id of ["#verdict", "#others", "#lossless"]) assert.equal(await text(page, id), await text(still.page, id), id);
  await still.done();

  // What the page chooses is what its own data say: the best in order that fits.
  const data = JSON.parse(await page.locator("#data").textContent());
  const group = (await page.locator("#group").count()) ? Number(await page.locator("#group").inputValue()) : data.first;
  const cells = data.groups[group];
  const sizes = cells.map((cell) => cell.bytes).sort((a, b) => a - b);
  for (const bytes of [...sizes, sizes.at(-1) * 2]) {
    await page.locator("#budget").fill(String(bytes / 1024));
    const want = cells.find((cell) => cell.bytes <= bytes);
    assert.equal(await text(page, "#pick"), want.name);
    assert.equal(await text(page, "#loss"), want.loss);
    assert.equal(await page.locator("tr.picked th").getAttribute("data-key").then((name) => name.endsWith(want.name)), true);
  }
  await page.locator("#budget").fill(String(sizes[0] / 2048));
  assert.match(await text(page, "#verdict .pick"), /^Nothing here fits/);
  await page.locator("#budget").fill("");
  assert.equal(await page.locator("#budget").getAttribute("aria-invalid"), "true");

  // The slider, by keyboard: more room never loses more.
  await page.locator("#slide").focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("End");
  assert.equal(await text(page, "#pick"), cells[0].name);
  assert.ok((await page.locator("#figure-quality .plot.wide .budget").count()) === 1);
  await done();
});

for (const scheme of ["light", "dark"]) {
  test(`${scheme}, on a desk and on a phone of 390 px`, async () => {
    for (const [width, height] of [[1280, 900], [390, 844]]) {
      const { page, done } = await open(browser, report, { width, height, scheme });
      await fits(page);
      const colours = await page.evaluate(() => {
        const style = (at) => getComputedStyle(document.querySelector(at));
        const figure = [...document.querySelectorAll(".plot text")].map((text) => getComputedStyle(text).fill);
        return {
          ground: style("body").backgroundColor,
          card: style(".plot").backgroundColor,
          texts: [style("body").color, style(".fine").color, style("a").color],
          figure: [...new Set(figure)],
        };
      });
      for (const text of colours.texts) assert.ok(contrast(text, colours.ground) >= 4.5, `${text} on ${colours.ground}`);
      if ((await page.locator("#figures .heat").count()) === 0) {
        for (const text of colours.figure) assert.ok(contrast(text, colours.card) >= 4.5, `${text} on ${colours.card}`);
      }
      assert.equal(contrast(colours.ground, "rgb(0, 0, 0)") < 2, scheme === "dark");
      // One drawing of each figure is seen, and its text is large enough to read.
      const sizes = await page.evaluate(() =>
        [...document.querySelectorAll("figure")].map((figure) => {
          const seen = [...figure.querySelectorAll("svg")].filter((svg) => svg.getBoundingClientRect().width > 0);
          const small = Math.min(...[...seen[0].querySelectorAll("text")].map((text) => text.getBoundingClientRect().height));
          return [seen.length, small];
        }),
      );
      for (const [count, small] of sizes) assert.ok(count === 1 && small >= 9, `${count} drawings, text of ${small} px`);
      await picture(page, `report-${scheme}-${width}`);
      await done();
    }
  });
}

test("with reduced motion nothing moves", async () => {
  const { page, done } = await open(browser, report, { reducedMotion: "reduce" });
  const style = await page.evaluate(() => [getComputedStyle(document.documentElement).scrollBehavior, getComputedStyle(document.querySelector("a")).transitionDuration]);
  assert.deepEqual(style, ["auto", "0s"]);
  await done();
});

test("names are text, and no script but the page's own runs", async () => {
  const hostile = join(folder, "hostile");
  cpSync(run, hostile, { recursive: true });
  const evil = '<script>document.title="owned"</script><img src=x onerror=alert(1)>';
  const name = JSON.parse(readFileSync(join(hostile, "records.jsonl"), "utf8").split("\n")[0]).cell;
  for (const file of ["records.jsonl", "resolved.toml"]) {
    const path = join(hostile, file);
    const quoted = JSON.stringify(name);
    writeFileSync(path, readFileSync(path, "utf8").replaceAll(quoted, JSON.stringify(evil)));
  }
  kvlab("report", hostile);
  const { page, done } = await open(browser, join(hostile, "report.html"));
  assert.ok((await page.locator('table[data-name="result"] tbody th').allInnerTexts()).some((text) => text.includes(evil)));
  assert.match(await page.title(), /kvlab/);
  assert.equal(await page.locator("img").count(), 0);
  assert.equal(await page.locator("script").count(), 2);
  await done();
});

test("two runs stand side by side, and what differs is named", async () => {
  const [a, b] = [join(folder, "machine-a", "run"), join(folder, "machine-b", "run")];
  for (const to of [a, b]) cpSync(run, to, { recursive: true });
  const path = join(b, "environment.json");
  writeFileSync(path, readFileSync(path, "utf8").replace(/"cores": \d+/, '"cores": 4096').replace(/"threads": [^,]+/, '"threads": null'));
  const out = join(folder, "both");
  kvlab("report", a, b, "--out", out);
  const { page, done } = await open(browser, join(out, "report.html"));
  const names = await page.locator('table[data-name="result"] tbody th').allInnerTexts();
  assert.ok(names.some((name) => name.includes("machine-a: ")) && names.some((name) => name.includes("machine-b: ")), names.join());
  assert.match(await page.locator("#run table.plain").innerText(), /4096/);
  await fits(page);
  await picture(page, "report-two-runs");
  await done();
});
