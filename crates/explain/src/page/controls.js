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
