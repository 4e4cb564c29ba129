// A page of `kvlab explain`, in headless Chromium: it steps, switches, speaks two languages, fits a phone, and asks nobody
// for anything.
//
//     node explain.mjs PAGE.html [FOLDER]     writes screenshots to FOLDER
//
// It ends with 1 if something is wrong. Needs playwright-core, and Chromium (/usr/bin/chromium, or $CHROMIUM).

import { chromium } from "playwright-core";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [file, shots] = process.argv.slice(2);
if (!file) {
  console.error("usage: node explain.mjs PAGE.html [FOLDER]");
  process.exit(2);
}
const address = pathToFileURL(resolve(file)).href;
const wrong = [];
let checks = 0;

function check(what, holds) {
  checks += 1;
  if (!holds) wrong.push(what);
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});

// A fresh page that reports what it should not do.
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) wrong.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => wrong.push(`script: ${error.message}`));
  page.on("request", (request) => {
    if (request.url() !== address) wrong.push(`request: ${request.url()}`);
  });
  await page.goto(address);
  return page;
}

const shot = async (page, name, fullPage = true) => {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png`, fullPage });
};
const text = (page, selector) => page.locator(selector).innerText();
const press = (page, key) => page.keyboard.press(key);
// Moves the slider; to the end where there are fewer moments.
const goTo = (page, moment) =>
  page.locator("#slider").evaluate((slider, to) => {
    slider.value = to;
    slider.dispatchEvent(new Event("input"));
  }, moment);
const traceOf = (page) => page.evaluate(() => JSON.parse(document.getElementById("trace").textContent));
// The numbers of the tally: rows, older scores, new scores, each without and with.
const tallyOf = (page) =>
  page.locator("#tally .line b").evaluateAll((all) => all.map((b) => Number(b.textContent.replace(/\D/g, ""))));
// The softmax of the close-up, each weight rounded to three digits.
async function weightsOf(page) {
  const all = await page.locator("#keys td.weight .number").allInnerTexts();
  const sum = all.reduce((total, weight) => total + Number(weight), 0);
  return { sum, fine: all.length > 0 && Math.abs(sum - 1) <= 0.0005 * all.length + 1e-9 };
}
// By the width that was asked for: a phone would zoom out, and call what it then shows the width of its window.
const overflow = async (page) =>
  (await page.evaluate(() => document.documentElement.scrollWidth)) - page.viewportSize().width;

// The tally by the recorded counts, after `done` whole passes.
function expected(layer, done) {
  const sum = (side, what) => layer[side].slice(0, done).reduce((total, counts) => total + counts[what], 0);
  return ["rows", "again", "new"].flatMap((what) => [sum("without", what), sum("with", what)]);
}

async function steps() {
  const page = await open();
  const trace = await traceOf(page);
  const last = 4 * trace.passes.length + 1;
  check("it begins before the first pass", (await page.locator("#slider").inputValue()) === "0");
  check("nothing is computed yet", (await tallyOf(page)).every((number) => number === 0));
  for (let moment = 1; moment <= last; moment += 1) {
    await press(page, "ArrowRight");
    check(`moment ${moment}`, (await page.locator("#slider").inputValue()) === String(moment));
    const done = Math.floor(moment / 4);
    if (moment % 4 === 0) {
      const [got, want] = [await tallyOf(page), expected(trace.variants[0].layers[0], done)];
      check(`the tally after pass ${done}: ${got}, not ${want}`, String(got) === String(want));
      const weights = await weightsOf(page);
      check(`the weights of pass ${done} add up to ${weights.sum}`, weights.fine);
    }
  }
  await press(page, "ArrowRight");
  check("it stops at the end", (await page.locator("#slider").inputValue()) === String(last));
  check("and the button says so", await page.locator("#next").isDisabled());
  await press(page, "ArrowLeft");
  check("back", (await page.locator("#slider").inputValue()) === String(last - 1));
  await press(page, "Home");
  check("Home", (await page.locator("#slider").inputValue()) === "0");
  await press(page, "End");
  check("End", (await page.locator("#slider").inputValue()) === String(last));
  await goTo(page, 3);
  check("the slider", (await text(page, "#place")).startsWith("3 "));
  await page.locator("body").click({ position: { x: 2, y: 2 } });
  await press(page, " ");
  check("it plays", (await page.locator("#play").getAttribute("aria-pressed")) === "true");
  await page.waitForFunction(() => Number(document.getElementById("slider").value) > 4, null, { timeout: 10_000 });
  await press(page, "ArrowRight");
  check("a step by hand ends the playing", (await page.locator("#play").getAttribute("aria-pressed")) === "false");
  await page.context().close();
}

async function variants() {
  const page = await open();
  await page.locator("[data-language=en]").click();
  const trace = await traceOf(page);
  for (const [i, variant] of trace.variants.entries()) {
    await page.locator("#variants input").nth(i).check();
    await press(page, "End");
    const bytes = variant.bytes_per_token.toLocaleString("en");
    check(`${variant.name} costs ${bytes}`, (await page.locator("#variants .card").nth(i).innerText()).includes(bytes));
    const [got, want] = [await tallyOf(page), expected(variant.layers[0], trace.passes.length)];
    check(`${variant.name}: ${got}, not ${want}`, String(got) === String(want));
    const weights = await weightsOf(page);
    check(`${variant.name}: weights add up to ${weights.sum}`, weights.fine);
    const gone = await page.locator("#with .row.is-gone").count();
    // What the last pass found in the cache is what the one before it left there.
    const found = trace.passes.length > 1 ? variant.layers[0].stored.at(-2).length : 0;
    check(`${variant.name} drops ${gone} rows`, gone === trace.passes.at(-1).first - found);
    const latent = (await page.locator("#keys thead").innerText()).includes("latent");
    check(`${variant.name} and its latent`, latent === variant.layers[0].latent);
    await shot(page, `variant-${variant.name}`);
  }
  await page.locator("#variants input").first().check();
  await page.locator("#variants input:checked").focus();
  const before = await page.locator("#slider").inputValue();
  await press(page, "ArrowRight");
  check("arrows choose a variant while it has the focus", await page.locator("#variants input").nth(1).isChecked());
  check("and do not step then", (await page.locator("#slider").inputValue()) === before);

  const output = () => text(page, "#numbers");
  const one = await output();
  await page.locator("#head").selectOption("1");
  const two = await output();
  check("another head has other numbers", one !== two);
  if (trace.variants[1].layers.length > 1) {
    await page.locator("#layer").selectOption("1");
    check("another layer has other numbers", (await output()) !== two);
  }
  await goTo(page, 3);
  if (trace.prompt > 1) {
    await page.locator("#query").selectOption("1");
    check("another query of the prefill", (await page.locator("#keys tbody tr").count()) === 2);
    await page.locator("#keys button").first().press("Enter");
    check("a row is chosen by key", (await page.locator("#keys tbody tr").first().getAttribute("class")).includes("chosen"));
  }
  await page.context().close();
}

async function languages() {
  const page = await open();
  for (const [code, name] of [["ja", "キャッシュ"], ["en", "cache"]]) {
    await page.locator(`[data-language=${code}]`).click();
    check(`${code}: the language of the page`, (await page.locator("html").getAttribute("lang")) === code);
    check(`${code}: the heading`, (await text(page, "h1")).includes(name));
    for (const moment of [0, 1, 5, 6, 7, 8, 999]) {
      await goTo(page, moment);
      const all = await text(page, "body");
      check(`${code}: an open place in ${all.match(/.{0,20}\{\w+\}/)}`, !/\{\w+\}|undefined|NaN|Infinity/.test(all));
    }
    if (code === "ja") await shot(page, "japanese");
  }
  await page.context().close();
}

// Contrast of texts with what is behind them (WCAG 2, 1.4.3: at least 4.5).
const contrasts = (page, selectors) =>
  page.evaluate((all) => {
    const luminance = (rgb) => {
      const [r, g, b] = rgb.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
        if (a > 0) return [r, g, b];
      }
      return [255, 255, 255];
    };
    return all.map((selector) => {
      const element = document.querySelector(selector);
      const [a, b] = [numbers(getComputedStyle(element).color).slice(0, 3), behind(element)].map(luminance);
      return { selector, ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) };
    });
  }, selectors);

async function looks() {
  const grounds = [];
  for (const colorScheme of ["light", "dark"]) {
    const page = await open({ colorScheme });
    await goTo(page, 7);
    const texts = ["#narration", ".lead", "#weights", "figcaption span", "thead th", ".saved", ".unsaved", ".legend li", "dt", ".facts li"];
    for (const { selector, ratio } of await contrasts(page, texts)) {
      check(`${colorScheme}: contrast ${ratio.toFixed(1)} of ${selector}`, ratio >= 4.5);
    }
    grounds.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    await shot(page, colorScheme);
    await page.context().close();
  }
  check("light and dark differ", grounds[0] !== grounds[1]);

  const phone = await open({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  for (const moment of [0, 2, 8]) {
    await goTo(phone, moment);
    for (let i = 0; i < (await phone.locator("#variants input").count()); i += 1) {
      await phone.locator("#variants input").nth(i).check();
      check(`a phone scrolls sideways by ${await overflow(phone)} at moment ${moment}, cache ${i}`, (await overflow(phone)) <= 0);
    }
  }
  const small = await phone.locator(".controls button").evaluateAll((all) => all.filter((b) => b.getBoundingClientRect().width < 40).length);
  check("buttons can be hit with a thumb", small === 0);
  await shot(phone, "phone");
  await shot(phone, "phone-screen", false);
  await phone.context().close();

  const calm = await open({ reducedMotion: "reduce" });
  await press(calm, "ArrowRight");
  const moving = await calm.locator(".enter").evaluateAll((rows) => rows.filter((r) => getComputedStyle(r).animationName !== "none").length);
  check("nothing moves where that is not wanted", moving === 0);
  await calm.context().close();
}

async function keyboard() {
  const page = await open();
  await press(page, "Tab");
  check("the first stop is the way to the controls", (await page.evaluate(() => document.activeElement.className)) === "skip");
  const reached = new Set();
  for (let i = 0; i < 40; i += 1) {
    await press(page, "Tab");
    const [id, outline, name] = await page.evaluate(() => {
      const at = document.activeElement;
      const seen = at.matches("#variants input") ? at.closest(".card") : at;
      const label = at.getAttribute("aria-label") ?? at.getAttribute("aria-labelledby") ?? at.labels?.[0]?.textContent ?? at.textContent;
      return [at.id || at.name || at.dataset.language, getComputedStyle(seen).outlineStyle, label];
    });
    if (id) reached.add(id);
    if (id && id !== "controls") {
      check(`${id} shows its focus`, outline !== "none");
      check(`${id} has a name`, (name ?? "").trim() !== "");
    }
  }
  for (const id of ["en", "ja", "variant", "layer", "head", "next", "play", "slider"]) {
    check(`${id} is reached by Tab`, reached.has(id));
  }
  await page.context().close();
}

try {
  for (const part of [steps, variants, languages, looks, keyboard]) await part();
} catch (error) {
  wrong.push(String(error));
}
await browser.close();
for (const what of new Set(wrong)) console.error(`wrong: ${what}`);
console.log(`explain: ${checks} checks, ${wrong.length} wrong`);
process.exit(wrong.length === 0 ? 0 : 1);
