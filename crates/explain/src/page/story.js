"use strict";
// What there is to tell: the data, what is chosen, and the moments that are stepped through.

const byId = (id) => document.getElementById(id);
const trace = JSON.parse(byId("trace").textContent);
const words = JSON.parse(byId("words").textContent);

const PHASES = ["rows", "scores", "weights", "output"];

const state = {
  variant: 0,
  layer: 0,
  head: 0,
  moment: 0,
  // A token and a row that were picked; null for those that follow from the moment.
  query: null,
  key: null,
  language: document.documentElement.lang,
};

// A start, four phases for each pass, and an end.
const moments = [{ kind: "start", pass: -1, phase: -1 }];
trace.passes.forEach((_, pass) => {
  const kind = pass === 0 ? "prefill" : "decode";
  PHASES.forEach((_, phase) => moments.push({ kind, pass, phase }));
});
moments.push({ kind: "end", pass: trace.passes.length - 1, phase: PHASES.length - 1 });

const fed = trace.passes.reduce((sum, pass) => sum + pass.tokens, 0);
const now = () => moments[state.moment];
const variant = () => trace.variants[state.variant];
const layer = () => variant().layers[state.layer];

// A text of the table, its {places} filled in.
function say(key, values = {}) {
  const text = words[state.language][key] ?? key;
  return text.replace(/\{(\w+)\}/g, (place, name) => values[name] ?? place);
}

const count = (number) => number.toLocaleString(state.language);

// A number of the trace as it is read: with its digits, and a minus sign that is one.
function decimal(value, decimals) {
  return (value / 10 ** decimals).toFixed(decimals).replace("-", "−");
}

// A token as it can be seen.
function visibleText(text) {
  const marks = { " ": "·", "\n": "⏎", "\r": "⏎", "\t": "⇥" };
  return text.replace(/[\u0000-\u0020\u007f]/g, (c) => marks[c] ?? "▯");
}

const token = (at) => visibleText(trace.tokens[at].text);

// How many tokens have been read at this moment.
function read() {
  const { pass } = now();
  return pass < 0 ? 0 : trace.passes[pass].first + trace.passes[pass].tokens;
}

// The rows that the query of a token sees.
function visible(at) {
  const { sees, keeps } = layer();
  const rows = [];
  for (let row = 0; row <= at; row += 1) {
    const seen = sees === null || at - row < sees;
    const kept = keeps === null || row < keeps.sinks || at - row < keeps.window;
    if (seen && kept) rows.push(row);
  }
  return rows;
}

// What is with a row at this moment: new, again, kept, gone, or ahead of what was read.
function rowState(row, side) {
  const { pass } = now();
  if (row >= read()) return "ahead";
  if (row >= trace.passes[pass].first) return "new";
  if (side === "without") return "again";
  return layer().stored[pass - 1].includes(row) ? "kept" : "gone";
}

// What was computed up to this moment.
function tally(side) {
  const { pass, phase } = now();
  const sum = { rows: 0, fresh: 0, again: 0 };
  layer()[side].slice(0, pass + 1).forEach((counts, of) => {
    sum.rows += counts.rows;
    if (of < pass || phase > 0) {
      sum.fresh += counts.new;
      sum.again += counts.again;
    }
  });
  return sum;
}

// The token whose query is looked at.
function query() {
  const { pass } = now();
  if (pass < 0) return null;
  const { first, tokens } = trace.passes[pass];
  const picked = state.query !== null && state.query >= first && state.query < first + tokens;
  return picked ? state.query : first + tokens - 1;
}

// Scores and weights of a query, by the row they belong to.
function steps(at) {
  const { query_heads, scores, weights } = layer();
  const list = at * query_heads + state.head;
  const found = new Map();
  visible(at).forEach((row, place) => {
    found.set(row, { score: scores.rows[list][place], weight: weights.rows[list][place] });
  });
  return found;
}

// The row that is looked at: the one that was picked, or that with the greatest weight.
function key(at) {
  const found = steps(at);
  if (found.has(state.key)) return state.key;
  let best = at;
  for (const [row, { weight }] of found) {
    if (weight > (found.get(best)?.weight ?? -1)) best = row;
  }
  return best;
}

const kvHead = () => Math.floor((state.head * layer().heads) / layer().query_heads);

// The vectors of a token, as whole numbers of the trace: { numbers, decimals }.
const part = (numbers, at, index, size) => ({
  numbers: numbers.rows[at].slice(index * size, (index + 1) * size),
  decimals: numbers.decimals,
});
const keyOf = (row) => part(layer().k, row, kvHead(), layer().key);
const queryOf = (at) => part(layer().q, at, state.head, layer().key);
const outputOf = (at) => part(layer().out, at, state.head, layer().value);
function valueOf(row) {
  if (!layer().latent) return part(layer().v, row, kvHead(), layer().value);
  const { numbers, decimals } = keyOf(row);
  return { numbers: numbers.slice(0, layer().value), decimals };
}

// The two columns of a row: keys and values, or the latent and the rotated key.
function columnsOf(row) {
  if (!layer().latent) return [keyOf(row), valueOf(row)];
  const { numbers, decimals } = keyOf(row);
  return [valueOf(row), { numbers: numbers.slice(layer().value), decimals }];
}

// How large a number of each column is at full height, one for all rows. The few greater ones are cut, or all others
// would be too small to see.
function scales() {
  const sizes = [[], []];
  for (let row = 0; row < fed; row += 1) {
    columnsOf(row).forEach(({ numbers }, i) => sizes[i].push(...numbers.map(Math.abs)));
  }
  return sizes.map((all) => Math.max(1, all.sort((a, b) => a - b)[Math.floor(all.length * 0.97)]));
}
