// One query: the keys that it meets, its scores, their softmax, and what comes out; as numbers.

function drawCloseUp() {
  const at = query();
  const table = byId("keys");
  const numbers = byId("numbers");
  drawQueryChoice(at);
  if (at === null) {
    byId("close-lead").textContent = say("close_start");
    table.replaceChildren();
    numbers.replaceChildren();
    return;
  }
  const found = steps(at);
  byId("close-lead").textContent = say("close_lead", {
    token: token(at), at, head: state.head, layer: layer().layer, keys: count(found.size), all: count(at + 1),
  });
  const rows = Array.from({ length: at + 1 }, (_, row) => keyRow(row, at, found.get(row)));
  table.replaceChildren(tableHead(), html("tbody", {}, ...rows), tableFoot(at));
  numbers.replaceChildren(...drawNumbers(at, key(at), found), ...drawNext(at));
  bringIntoView(table);
}

// Scrolls the table, and not the page, to the chosen row.
function bringIntoView(table) {
  const holder = table.parentElement;
  const row = table.querySelector(".chosen");
  const [head, foot] = [table.tHead.offsetHeight, table.tFoot.offsetHeight];
  const above = row.offsetTop - head;
  const below = row.offsetTop + row.offsetHeight + foot - holder.clientHeight;
  holder.scrollTop = Math.min(Math.max(holder.scrollTop, below), above);
}

// What the model thinks comes after the last token of the pass.
function drawNext(at) {
  if (now().phase < 3 || at !== read() - 1) return [];
  const guesses = variant().next[now().pass].map(({ text, p }) => {
    const bar = html("span", { class: "bar" });
    bar.style.setProperty("--part", p);
    return html("li", {}, html("b", {}, visibleText(text)), bar, html("span", { class: "number" }, p.toFixed(3)));
  });
  return [html("h3", {}, say("next_title")), html("ul", { class: "next" }, ...guesses)];
}

function drawQueryChoice(at) {
  const choice = byId("query");
  choice.disabled = at === null;
  if (at === null) {
    choice.replaceChildren();
    return;
  }
  const { first, tokens } = trace.passes[now().pass];
  const options = Array.from({ length: tokens }, (_, i) =>
    html("option", { value: first + i }, `${first + i}: ${token(first + i)}`));
  choice.replaceChildren(...options);
  choice.value = String(at);
}

function tableHead() {
  const names = layer().latent
    ? [say("row"), say("latent"), say("rotated"), say("score"), say("weight")]
    : [say("row"), say("key"), say("value"), say("score"), say("weight")];
  return html("thead", {}, html("tr", {}, ...names.map((name) => html("th", { scope: "col" }, name))));
}

function keyRow(row, at, step) {
  const { phase } = now();
  const is = step === undefined ? "gone" : rowState(row, "with");
  const chosen = row === key(at);
  const button = html(
    "button",
    { type: "button", "aria-pressed": chosen, "aria-label": say("look_at", { row, token: token(row) }) },
    html("span", { class: "place" }, String(row)),
    html("b", {}, token(row)),
  );
  button.addEventListener("click", () => {
    state.key = row;
    render();
    byId("keys").querySelector("[aria-pressed=true]")?.focus();
  });
  if (step === undefined) button.disabled = true;
  const strips = columnsOf(row).map((vector, i) => html("td", {}, strip(vector, largest()[i], `is-${is}`)));
  const cells = step === undefined
    ? [html("td", { colspan: 2, class: "unseen" }, say("unseen"))]
    : [scoreCell(step, phase), weightCell(step, phase)];
  return html("tr", { class: `is-${is}${chosen ? " chosen" : ""}` }, html("th", { scope: "row" }, button), ...strips, ...cells);
}

const largest = () => scales.found ?? scales();

function scoreCell({ score }, phase) {
  return html("td", { class: "number" }, phase < 1 ? "" : decimal(score, layer().scores.decimals));
}

function weightCell({ weight }, phase) {
  if (phase < 2) return html("td", { class: "weight" });
  const bar = html("span", { class: "bar" });
  bar.style.setProperty("--part", weight / 1000);
  return html("td", { class: "weight" }, bar, html("span", { class: "number" }, decimal(weight, 3)));
}

// The output below the rows that it is made of.
function tableFoot(at) {
  if (now().phase < 3) return html("tfoot");
  const output = outputOf(at);
  const greatest = Math.max(1, ...output.numbers.map(Math.abs));
  const picture = html("td", {}, strip(output, greatest, "is-output"));
  const blank = html("td");
  const cells = layer().latent ? [picture, blank] : [blank, picture];
  const sum = html("td", { colspan: 2, class: "sum" }, layer().sink ? say("sum_sink") : say("sum"));
  return html("tfoot", {}, html("tr", {}, html("th", { scope: "row" }, say("output")), ...cells, sum));
}

// One key in full.
function drawNumbers(at, row, found) {
  const { phase } = now();
  const { scale, softcap, scores, latent } = layer();
  const { score, weight } = found.get(row);
  const lines = [
    vectorLine(say("symbol_query"), say("query_of", { token: token(at), at }), queryOf(at)),
    vectorLine(say("symbol_key"), say("key_of", { token: token(row), row }), keyOf(row)),
  ];
  if (phase >= 1) {
    const factor = String(Number(scale.toPrecision(4)));
    const formula = softcap === null ? say("symbol_score", { factor }) : say("symbol_capped", { factor, cap: softcap });
    lines.push(formulaLine(formula, decimal(score, scores.decimals), say("score_text")));
  }
  if (phase >= 2) lines.push(formulaLine(say("symbol_weight"), decimal(weight, 3), say("weight_text")));
  if (phase >= 3) {
    const name = latent ? say("latent_value") : say("value_of", { token: token(row), row });
    lines.push(vectorLine(say("symbol_value"), name, valueOf(row)));
    lines.push(vectorLine(say("symbol_output"), latent ? say("latent_output") : say("output_text"), outputOf(at)));
  }
  return [html("h3", {}, say("numbers", { query: token(at), at, key: token(row), row })), html("dl", {}, ...lines.flat())];
}

function vectorLine(symbol, name, { numbers, decimals }) {
  const list = numbers.map((number) => html("span", {}, decimal(number, decimals)));
  return [html("dt", {}, html("var", {}, symbol), ` ${name}`), html("dd", { class: "vector" }, ...list)];
}

function formulaLine(formula, result, text) {
  return [html("dt", {}, text), html("dd", { class: "formula" }, html("var", {}, formula), " = ", html("b", {}, result))];
}
