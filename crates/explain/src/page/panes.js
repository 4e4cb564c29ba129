// The two sides: every token's row, and who meets whom.

// Shades of a cell; the last is for weights from a half on.
const SHADES = [0.03, 0.1, 0.25, 0.5];

const shadeOf = (weight) => SHADES.filter((least) => weight / 1000 >= least).length;

function drawPane(side) {
  const figure = byId(side);
  const holder = figure.querySelector(".picture");
  const width = Math.max(holder.clientWidth, 140);
  const place = layout(width);
  const parts = [
    heading(place),
    ...Array.from({ length: fed }, (_, row) => drawRow(row, side, place)),
    ...drawCells(side, place),
    focus(place),
  ];
  const picture = shape(
    "svg",
    {
      width,
      height: place.height,
      viewBox: `0 0 ${width} ${place.height}`,
      role: "img",
      "aria-label": summary(side),
    },
    hatch(side),
    ...parts,
  );
  picture.style.fontSize = `${Math.min(11, place.row * 0.82)}px`;
  picture.addEventListener("click", (event) => pick(event, picture, place));
  holder.replaceChildren(picture);
  figure.querySelector("figcaption").replaceChildren(...caption(side));
}

// Where things are, for a picture of this width.
function layout(width) {
  // On a phone both sides still stand beside each other.
  const narrow = width < 300;
  const letters = Math.min(narrow ? 4 : 10, Math.max(...trace.tokens.map((_, at) => [...token(at)].length)));
  const left = narrow ? 21 + 6 * letters : 35 + 7 * letters;
  const strips = narrow ? 48 : Math.min((width - left) * 0.4, 230);
  const [first, second] = columnsOf(0).map(({ numbers }) => numbers.length);
  const gap = narrow ? 4 : 8;
  const columns = [
    { x: left, width: ((strips - gap) * first) / (first + second) },
    { x: left + gap + ((strips - gap) * first) / (first + second), width: ((strips - gap) * second) / (first + second) },
  ];
  const x = left + strips + (narrow ? 5 : 10);
  // The newest row is the last one: where it can be, it is above the controls.
  const room = narrow ? 300 : Math.max(300, window.innerHeight - 590);
  const row = narrow ? Math.min(14, Math.max(9.5, room / fed)) : Math.min(20, Math.max(12, room / fed));
  const cell = Math.min(row * 1.4, (width - x - 2) / fed);
  const top = narrow ? 18 : 30;
  return { narrow, letters, left, columns, x, row, cell, top, width, height: top + fed * row + 4 };
}

function heading({ narrow, columns, x, cell, top }) {
  const [first, second] = layer().latent ? [say("latent"), say("rotated")] : [say("keys"), say("values")];
  const names = narrow ? (layer().latent ? ["c", "k"] : ["K", "V"]) : [first, second];
  const label = (text, at) => shape("text", { class: "label", x: at, y: 11 }, text);
  const marks = cell < 8 ? [] : Array.from({ length: fed }, (_, row) =>
    shape(
      "text",
      { class: row < read() ? "tiny" : "tiny ahead", x: x + (row + 0.5) * cell, y: top - 4, "text-anchor": "middle" },
      row < known() ? [...token(row).replace(/^·(?=.)/u, "")][0] : "",
    ));
  return shape("g", {}, ...columns.map((column, i) => label(names[i], column.x)), label(narrow ? say("meets_short") : say("meets"), x), ...marks);
}

// A token, cut where it is too long for its place.
function short(at, letters) {
  const all = [...token(at)];
  return all.length > letters ? `${all.slice(0, letters - 1).join("")}…` : all.join("");
}

// Tokens that are known at this moment: those of the text, and what was generated so far.
const known = () => Math.max(trace.prompt, read());

const MARKS = { new: "+", again: "↻", kept: "✓", gone: "×", ahead: "" };

function drawRow(row, side, place) {
  const is = rowState(row, side);
  const y = place.top + row * place.row;
  const group = shape("g", { class: `row is-${is}` });
  const text = (x, anchor, content, className) =>
    group.append(shape("text", { class: className, x, y: y + place.row * 0.74, "text-anchor": anchor }, content));
  text(0, "start", MARKS[is], "mark");
  text(place.left - 4, "end", row < known() ? short(row, place.letters) : "", "token");
  if (is === "ahead") return group;
  if (is === "new" && now().phase === 0) {
    group.classList.add("enter");
    group.style.animationDelay = `${(row - trace.passes[now().pass].first) * 30}ms`;
  }
  const largest = scales.found ?? scales();
  columnsOf(row).forEach(({ numbers }, i) => {
    const { x, width } = place.columns[i];
    const box = { x, y: y + 1, width, height: place.row - 2 };
    group.append(shape("rect", { class: "ground", rx: 2, ...box }));
    if (is !== "gone") group.append(shape("path", { class: "bars", d: bars(numbers, largest[i], box) }));
  });
  return group;
}

// Cells of the triangle, all of one look in one path.
function drawCells(side, place) {
  const { pass, phase } = now();
  const looks = new Map();
  for (let at = 0; at < read(); at += 1) {
    const fresh = at >= trace.passes[pass].first;
    const look = fresh ? "new" : side === "without" ? "again" : "past";
    if (phase < 1 && look !== "past") continue;
    for (const [row, { weight }] of steps(at)) {
      const shade = look === "past" ? "" : phase < 2 ? " flat" : ` shade-${shadeOf(weight)}`;
      const name = `cell is-${look}${shade}`;
      const gap = place.cell > 5 ? 1 : 0.4;
      const d = rectangle(
        place.x + row * place.cell,
        place.top + at * place.row + gap,
        place.cell - gap,
        place.row - 2 * gap,
      );
      looks.set(name, (looks.get(name) ?? "") + d);
    }
  }
  const cells = [...looks].map(([name, d]) => shape("path", { class: name, d }));
  // Hatching says "again" without colour.
  const again = [...looks].filter(([name]) => name.includes("is-again")).map(([, d]) => d).join("");
  if (again) cells.push(shape("path", { d: again, fill: `url(#hatch-${side})` }));
  return cells;
}

function hatch(side) {
  const lines = shape("path", { class: "hatch", d: "M-1 1l2 -2M0 4l4 -4M3 5l2 -2" });
  const pattern = { id: `hatch-${side}`, width: 4, height: 4, patternUnits: "userSpaceOnUse" };
  return shape("defs", {}, shape("pattern", pattern, lines));
}

// A frame around the query that the close-up shows.
function focus({ x, row, cell, top }) {
  const at = query();
  if (at === null || now().phase < 1) return null;
  return shape("rect", {
    class: "focus", x: x - 2, y: top + at * row - 0.5, width: (at + 1) * cell + 3, height: row + 1, rx: 3,
  });
}

// A click on a row of the triangle looks at its query.
function pick(event, picture, { top, row }) {
  const box = picture.getBoundingClientRect();
  const at = Math.floor((event.clientY - box.top - top) / row);
  if (now().pass < 0 || at < trace.passes[now().pass].first || at >= read()) return;
  state.query = at;
  state.key = null;
  render();
}

function caption(side) {
  const title = html("strong", {}, side === "with" ? say("with") : say("without"));
  const { pass, phase } = now();
  if (pass < 0) return [title, html("span", {}, side === "with" ? say("with_start") : say("without_start"))];
  const { rows, new: fresh, again } = layer()[side][pass];
  const sum = tally(side);
  const total = say("so_far", { rows: count(sum.rows), scores: count(sum.fresh + sum.again) });
  const text = [say("this_pass", { rows: count(rows), scores: count(phase > 0 ? fresh + again : 0) })];
  if (side === "with") text.push(say("cache_holds", { bytes: count(variant().bytes[pass]) }));
  return [title, html("b", {}, total), html("span", {}, text.join(" "))];
}

function summary(side) {
  const title = side === "with" ? say("with") : say("without");
  const rows = { new: 0, again: 0, kept: 0, gone: 0, ahead: 0 };
  for (let row = 0; row < fed; row += 1) rows[rowState(row, side)] += 1;
  return `${title}: ${say("picture", rows)}`;
}
