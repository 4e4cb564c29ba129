// Sorts tables, and answers for other budgets. Without it the page is whole, for the first budget.
"use strict";
(() => {
  // ---- Tables: a heading is a button; what is sorted by is what stands there. ----
  const compare = (a, b) => {
    // Nothing measured goes to the end, whichever way round.
    if (a === "" || b === "") return a === b ? 0 : a === "" ? Infinity : -Infinity;
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x === y ? 0 : x - y;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = (row) => row.cells[column].dataset.key;
        const rows = [...body.rows].sort((a, b) => {
          const order = compare(key(a), key(b));
          return up || !Number.isFinite(order) ? Math.sign(order) : -Math.sign(order);
        });
        body.append(...rows);
      });
    });
  }

  // ---- The budget. Candidates come in the order in which they are preferred. ----
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const [budget, slide, group] = [at("budget"), at("slide"), at("group")];
  if (!budget || data.groups.length === 0) return;
  const ends = data.groups.flat().map((cell) => cell.bytes).filter((bytes) => bytes > 0);
  const low = Math.log2(Math.min(...ends) / 2);
  const high = Math.log2(Math.max(...ends) * 1.5);
  const round = (kib) => Number(kib.toPrecision(3));

  const element = (name, text, kind) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const show = () => {
    const kib = Number(budget.value);
    const bytes = budget.value.trim() !== "" && kib >= 0 ? kib * 1024 : NaN;
    budget.setAttribute("aria-invalid", String(Number.isNaN(bytes)));
    if (Number.isNaN(bytes)) return;
    const all = data.groups[group ? Number(group.value) : data.first];
    const within = all.filter((cell) => cell.bytes <= bytes);
    const best = within[0];
    const verdict = at("verdict");
    verdict.classList.toggle("none", !best);
    const pick = verdict.querySelector(".pick");
    const smallest = all.reduce((a, b) => (b.bytes < a.bytes ? b : a), all[0]);
    pick.replaceChildren(
      best ? "Use " : "Nothing here fits. The smallest is ",
      Object.assign(element("strong", (best || smallest).name), { id: "pick" }),
    );
    const shown = best || smallest;
    at("loss").textContent = shown.loss;
    at("tiles").replaceChildren(
      ...shown.tiles.map(([what, value]) => {
        const tile = document.createElement("div");
        tile.append(element("dt", what), element("dd", value));
        return tile;
      }),
    );
    const others = within.slice(1, 4).map((cell) => {
      const item = document.createElement("li");
      item.append(element("span", cell.name, "name"), " ", element("span", cell.brief, "fine"));
      return item;
    });
    at("others").replaceChildren(...(others.length ? others : [element("li", "no other", "fine")]));
    at("lossless").textContent = data.lossless[group ? Number(group.value) : data.first];
    const place = (Math.log2(Math.max(bytes, 1e-9)) - low) / (high - low);
    slide.value = String(Math.round(1000 * Math.min(Math.max(place, 0), 1)));
    slide.setAttribute("aria-valuetext", `${round(kib)} KiB a token`);
    draw(bytes);
    mark(shown.row);
  };

  // The budget as a line in the figure of quality, and the answer in the table.
  const draw = (bytes) => {
    for (const plot of document.querySelectorAll("#figure-quality .plot[data-plot]")) {
      const [x0, x1, y0, y1, from, to] = plot.dataset.plot.split(" ").map(Number);
      const svg = plot.querySelector("svg");
      let line = svg.querySelector(".budget");
      if (!line) {
        line = document.createElementNS("http://www.w3.org/2000/svg", "line");
        line.setAttribute("class", "budget");
        svg.append(line);
      }
      const share = Math.log2(bytes / from) / Math.log2(to / from);
      const x = x0 + Math.min(Math.max(share, 0), 1) * (x1 - x0);
      for (const [name, value] of Object.entries({ x1: x, x2: x, y1: y0, y2: y1 })) line.setAttribute(name, String(value));
      line.setAttribute("visibility", share >= 0 && share <= 1 ? "visible" : "hidden");
    }
  };
  const first = document.querySelector('table[data-name="result"]');
  const lines = first ? [...first.tBodies[0].rows] : [];
  const mark = (row) => lines.forEach((line, i) => line.classList.toggle("picked", i === row));

  budget.addEventListener("input", show);
  slide.addEventListener("input", () => {
    budget.value = String(round(2 ** (low + (Number(slide.value) / 1000) * (high - low)) / 1024));
    show();
  });
  if (group) {
    group.addEventListener("change", () => {
      budget.value = String(data.budgets[Number(group.value)]);
      show();
    });
  }
  budget.form.addEventListener("submit", (event) => event.preventDefault());
  show();
})();
