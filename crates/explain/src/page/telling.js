// What is said: the moment in words, the marks, the counts, and the facts.

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
  if (kind === "decode" && phase === 0 && rowsGone()) parts.push(say("fell_out", { window, others: window - 1 }));
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
