// The page of `kvlab explain`: explain.mjs checks it, for two models. Skipped where this checkout has no such command.
import { test } from "node:test";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kvlab, root } from "./browser.mjs";

const checks = join(root, "tests/browser/explain.mjs");
for (const model of ["mha", "mla"]) {
  test(`the page of kvlab explain: ${model}`, { skip: !existsSync(checks) }, () => {
    const folder = mkdtempSync(join(tmpdir(), "kvlab-explain-"));
    const page = join(folder, "explain.html");
    kvlab("explain", `configs/models/bytes-${model}.toml`, "Of Man's first disobed", "--out", page);
    const pictures = process.env.SCREENSHOTS ? [process.env.SCREENSHOTS] : [];
    execFileSync(process.execPath, [checks, page, ...pictures], { stdio: "inherit" });
    rmSync(folder, { recursive: true });
  });
}
