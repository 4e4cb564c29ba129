// Choices, keys, and what is drawn again after them.

const PLAY_MS = 1600;
let timer = null;

function render() {
  scales.found = scales();
  document.documentElement.lang = state.language;
  document.title = `${say("title")}: ${trace.text}`;
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = say(element.dataset.t);
  for (const element of document.querySelectorAll("[data-t-label]")) {
    element.setAttribute("aria-label", say(element.dataset.tLabel));
    if (element.matches("button")) element.title = say(element.dataset.tLabel);
  }
  for (const button of document.querySelectorAll("[data-language]")) {
    button.setAttribute("aria-pressed", button.dataset.language === state.language);
  }
  drawSentence();
  drawVariants();
  drawWhere();
  drawNarration();
  drawPane("without");
  drawPane("with");
  drawLegend();
  drawTally();
  drawCloseUp();
  drawFacts();
  drawControls();
}

function drawSentence() {
  const shown = Math.max(trace.prompt, read() + (now().phase === 3 ? 1 : 0));
  const items = trace.tokens.slice(0, shown).map((_, at) => {
    const kind = at < trace.prompt ? "given" : "generated";
    const current = at >= read() - (now().pass < 0 ? 0 : trace.passes[now().pass].tokens) && at < read();
    return html("li", { class: `${kind}${current ? " current" : ""}` }, token(at));
  });
  byId("sentence").replaceChildren(...items);
}

function drawVariants() {
  const most = Math.max(...trace.variants.map((v) => v.bytes_per_token));
  const holder = byId("variants");
  const focused = holder.contains(document.activeElement);
  const cards = trace.variants.map((v, i) => {
    const input = html("input", { type: "radio", name: "variant", value: i });
    input.checked = i === state.variant;
    input.addEventListener("change", () => choose({ variant: i }));
    const bar = html("span", { class: "bar" });
    bar.style.setProperty("--part", v.bytes_per_token / most);
    const bytes = html("small", {}, say("bytes_a_token", { bytes: count(v.bytes_per_token) }));
    return html("label", { class: "card" }, input, html("b", {}, v.name.toUpperCase()), bytes, bar);
  });
  holder.replaceChildren(...cards);
  if (focused) holder.querySelector("input:checked").focus();
  const missing = trace.missing.map(({ name, reason }) =>
    html("p", {}, say("missing", { name: name.toUpperCase() }), " ", html("span", { lang: "en" }, reason)));
  byId("missing").replaceChildren(...missing);
}

function drawWhere() {
  const { name, model, source, lossy, all_layers } = variant();
  const { query_heads, heads, key, value, bytes, keeps, sees } = layer();
  const group = query_heads / heads;
  const known = ["mha", "gqa", "mqa", "swa", "mla"].includes(name) ? name : "other";
  byId("about").textContent = say("variant." + known, {
    name: name.toUpperCase(), heads: query_heads, kv: heads, group, key, value, rope: key - value, bytes: count(bytes),
    window: Math.min(keeps?.window ?? Infinity, sees ?? Infinity), layers: all_layers, total: count(variant().bytes_per_token),
  });
  const from = say("source." + source, { model });
  const notes = lossy.length === 0 ? [say("exact")] : [say("lossy"), html("span", { lang: "en" }, `(${lossy.join("; ")}).`)];
  if (sees !== null && keeps !== null && keeps.window < sees) notes.push(say("window_cut", { sees, window: keeps.window }));
  byId("weights").replaceChildren(...[from, ...notes].flatMap((note) => [note, " "]));
  options(byId("layer"), variant().layers.map((l) => l.layer), state.layer);
  options(byId("head"), Array.from({ length: query_heads }, (_, head) => head), state.head);
  byId("heads").replaceChildren(drawHeads());
}

function options(select, names, chosen) {
  select.replaceChildren(...names.map((name, i) => html("option", { value: i }, String(name))));
  select.value = String(chosen);
}

// Which query heads share a stored head.
function drawHeads() {
  const { query_heads, heads, latent } = layer();
  const step = Math.min(44, 360 / query_heads);
  const width = step * query_heads;
  const size = Math.min(step - 6, 30);
  const lines = [];
  const shapes = [];
  const name = (text, x, y) => shape("text", { x, y, "text-anchor": "middle" }, text);
  const stored = width / heads;
  for (let head = 0; head < query_heads; head += 1) {
    const kv = Math.floor((head * heads) / query_heads);
    const on = head === state.head ? " on" : "";
    const [x, below] = [(head + 0.5) * step, (kv + 0.5) * stored];
    lines.push(shape("path", { class: `link${on}`, d: `M${x} 30L${below} 58` }));
    const circle = shape("g", { class: `query${on}` }, shape("circle", { cx: x, cy: 16, r: size / 2 }), name(`q${head}`, x, 20));
    circle.addEventListener("click", () => choose({ head }));
    shapes.push(circle);
  }
  for (let kv = 0; kv < heads; kv += 1) {
    const on = kv === kvHead() ? " on" : "";
    const wide = latent ? Math.min(width - 4, 150) : Math.min(stored - 6, 64);
    const x = (kv + 0.5) * stored;
    const text = latent ? say("latent") : wide < 36 ? String(kv) : `KV ${kv}`;
    shapes.push(shape("g", { class: `stored${on}` },
      shape("rect", { x: x - wide / 2, y: 58, width: wide, height: 24, rx: 4 }), name(text, x, 74)));
  }
  const label = latent ? say("share_latent", { heads: query_heads }) : say("share", { heads: query_heads, kv: heads });
  return shape("svg", { class: "heads", width, height: 84, viewBox: `0 0 ${width} 84`, role: "img", "aria-label": label }, ...lines, ...shapes);
}

function drawNarration() {
  const { kind, pass, phase } = now();
  byId("moment").textContent = title();
  const window = Math.min(layer().keeps?.window ?? Infinity, layer().sees ?? Infinity);
  const what = layer().latent ? say("row_latent") : say("row_kv");
  const values = { prompt: trace.prompt, new: trace.passes.length, fed, what };
  if (pass >= 0) {
    const { first, tokens } = trace.passes[pass];
    const at = first + tokens - 1;
    const guess = variant().next[pass][0];
    const [w, wo] = [layer().with[pass], layer().without[pass]];
    Object.assign(values, {
      token: token(at), at, tokens: at + 1, older: first, rows: count(w.rows), again_rows: count(wo.rows),
      scores: count(w.new), again: count(wo.again), window, next: token(at + 1),
      guess: visibleText(guess.text), percent: (guess.p * 100).toFixed(0),
    });
  }
  if (kind === "end") {
    const [w, wo] = [tally("with"), tally("without")];
    Object.assign(values, { rows: count(w.rows), again_rows: count(wo.rows), scores: count(w.fresh), again: count(wo.again) });
  }
  const parts = [told(kind, phase, values)];
  if (kind === "prefill" && phase === 1 && window < read()) parts.push(say("band", { window }));
  if (kind === "decode" && phase === 0 && rowsGone()) parts.push(say("fell_out", { window }));
  if (phase === 3 && kind !== "end") parts.push(same() ? say("next_same", values) : say("next_other", values));
  byId("narration").textContent = parts.join(" ");
}

function told(kind, phase, values) {
  if (kind === "start") return say("start", values);
  if (kind === "end") return say("end", values);
  return kind === "prefill" ? say("told_prefill." + PHASES[phase], values) : say("told_decode." + PHASES[phase], values);
}

const rowsGone = () => Array.from({ length: read() }, (_, row) => rowState(row, "with")).includes("gone");

// Whether the likeliest token of this variant is the one that the text goes on with.
const same = () => variant().next[now().pass][0].text === trace.tokens[read()].text;

function title() {
  const { kind, pass, phase } = now();
  if (kind === "start" || kind === "end") return kind === "start" ? say("start_title") : say("end_title");
  const name = kind === "prefill" ? say("prefill") : say("decode");
  return say("moment", { name, pass: pass + 1, passes: trace.passes.length, phase: say("phase." + PHASES[phase]) });
}

function drawLegend() {
  const names = { new: say("legend_new"), again: say("legend_again"), kept: say("legend_kept"), gone: say("legend_gone") };
  const items = Object.entries(names).map(([is, name]) =>
    html("li", { class: `is-${is}` }, html("span", { class: "swatch", "aria-hidden": true }, MARKS[is]), name));
  items.push(html("li", {}, html("span", { class: "shades", "aria-hidden": true }), say("legend_shade")));
  byId("legend").replaceChildren(...items);
}

function drawTally() {
  const [w, wo] = [tally("with"), tally("without")];
  const group = (name, text, without, cached, saved) => {
    const most = Math.max(without, cached, 1);
    const line = (side, number) => {
      const bar = html("span", { class: `bar is-${side}` });
      bar.style.setProperty("--part", number / most);
      return html("div", { class: "line" }, html("span", {}, side === "with" ? say("with_short") : say("without_short")), bar,
        html("b", {}, count(number)));
    };
    return html("div", { class: "measure" }, html("h4", {}, name), line("without", without), line("with", cached),
      html("p", { class: saved ? "saved" : "unsaved" }, text));
  };
  const percent = (part, of) => (of === 0 ? "0" : ((part / of) * 100).toFixed(0));
  const saved = (without, cached) => say("saved", { number: count(without - cached), percent: percent(without - cached, without) });
  byId("tally").replaceChildren(
    group(say("tally_rows"), saved(wo.rows, w.rows), wo.rows, w.rows, true),
    group(say("tally_again"), saved(wo.again, w.again), wo.again, w.again, true),
    group(say("tally_new"), say("not_saved"), wo.fresh, w.fresh, false),
  );
}

function drawFacts() {
  const { model, deviation, difference, all_layers } = variant();
  const facts = [
    say("fact_counts", { layers: all_layers, heads: layer().query_heads }),
    say("fact_true", { model, deviation: deviation.toExponential(0), difference: difference.toExponential(0) }),
    say("fact_same"),
    say("fact_keys"),
  ];
  byId("facts").replaceChildren(...facts.map((fact) => html("li", {}, fact)));
}

function drawControls() {
  const last = moments.length - 1;
  byId("slider").max = last;
  byId("slider").value = state.moment;
  byId("slider").setAttribute("aria-valuetext", title());
  byId("place").textContent = `${state.moment} / ${last}`;
  byId("first").disabled = byId("previous").disabled = state.moment === 0;
  byId("next").disabled = state.moment === last;
  const play = byId("play");
  play.setAttribute("aria-pressed", timer !== null);
  play.title = timer === null ? say("play") : say("pause");
  play.setAttribute("aria-label", play.title);
  const passes = trace.passes.map((_, pass) => {
    const mark = html("i", { class: pass === 0 ? "prefill" : "decode" });
    mark.style.left = `${((1 + pass * PHASES.length) / last) * 100}%`;
    return mark;
  });
  byId("marks").replaceChildren(...passes);
}

// Changes what is chosen, within what there is.
function choose(change) {
  Object.assign(state, change);
  state.layer = Math.min(state.layer, variant().layers.length - 1);
  state.head = Math.min(state.head, layer().query_heads - 1);
  render();
}

function goTo(moment) {
  const before = now().pass;
  state.moment = Math.min(Math.max(moment, 0), moments.length - 1);
  if (now().pass !== before) Object.assign(state, { query: null, key: null });
  if (state.moment === moments.length - 1) stop();
  render();
}

function stop() {
  clearInterval(timer);
  timer = null;
}

function play() {
  if (timer !== null) {
    stop();
    render();
    return;
  }
  timer = setInterval(() => goTo(state.moment + 1), PLAY_MS);
  goTo(state.moment === moments.length - 1 ? 0 : state.moment + 1);
}

// A step by hand ends the playing.
function step(moment) {
  stop();
  goTo(moment);
}

byId("first").addEventListener("click", () => step(0));
byId("previous").addEventListener("click", () => step(state.moment - 1));
byId("next").addEventListener("click", () => step(state.moment + 1));
byId("play").addEventListener("click", play);
byId("slider").addEventListener("input", (event) => step(Number(event.target.value)));
byId("layer").addEventListener("change", (event) => choose({ layer: Number(event.target.value), key: null }));
byId("head").addEventListener("change", (event) => choose({ head: Number(event.target.value), key: null }));
byId("query").addEventListener("change", (event) => choose({ query: Number(event.target.value), key: null }));
for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => choose({ language: button.dataset.language }));
}

// Keys step everywhere but where an element has its own use for them.
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select")) return;
  const moves = {
    ArrowRight: () => step(state.moment + 1),
    ArrowLeft: () => step(state.moment - 1),
    Home: () => step(0),
    End: () => step(moments.length - 1),
  };
  if (event.key === " " && !event.target.closest("button, a, .scroll")) moves[" "] = play;
  if (!moves[event.key]) return;
  event.preventDefault();
  moves[event.key]();
});

let drawnAt = 0;
new ResizeObserver(() => {
  const width = byId("with").clientWidth;
  if (width === drawnAt) return;
  drawnAt = width;
  drawPane("without");
  drawPane("with");
}).observe(byId("with"));

render();
