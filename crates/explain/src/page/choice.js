// The sentence, the caches to choose from, and where in the model we look.

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
