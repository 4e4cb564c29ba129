// What every spec needs: Chromium, and a page that keeps what must not happen: errors, and requests other than for its file.
import { chromium } from "playwright-core";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

export const root = process.env.ROOT;
const kvlabPath = process.env.KVLAB;

/** Runs kvlab from the root of the repository, and returns what it prints. */
export const kvlab = (...args) => execFileSync(kvlabPath, args, { cwd: root, encoding: "utf8" });

export const launch = () =>
  chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });

/** Opens a file. `done` closes it, and fails if something happened that must not. */
export async function open(browser, file, { width = 1280, height = 900, scheme = "light", ...rest } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, ...rest });
  const page = await context.newPage();
  const url = pathToFileURL(file).href;
  const [errors, requests] = [[], []];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(url);
  const done = async () => {
    assert.deepEqual(errors, [], "console");
    const others = requests.filter((request) => request !== url && !request.startsWith("data:"));
    assert.deepEqual(others, [], "requests to anything but the file");
    await context.close();
  };
  return { page, done };
}

/** No scrolling sideways: nothing sticks out of the page. */
export async function fits(page) {
  const [content, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  assert.ok(content <= screen, `the page is ${content} px wide on a screen of ${screen} px`);
}

/** A picture for people, where SCREENSHOTS names a folder. */
export async function picture(page, name, options = { fullPage: true }) {
  if (!process.env.SCREENSHOTS) return;
  mkdirSync(process.env.SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(process.env.SCREENSHOTS, `${name}.png`), ...options });
}

/** Contrast of two colours as CSS computes them, from 1 to 21 (WCAG 2.2, "contrast ratio"). */
export function contrast(a, b) {
  const light = (text) => {
    const [r, g, b] = text.match(/[\d.]+/g).slice(0, 3).map((n) => {
      const c = Number(n) / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}
