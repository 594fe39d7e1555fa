"use strict";
// The timelines of a report: decodes the tracks (simulator/page/tracks.h), draws them, and says what is at the pointer. Keys and mouse are
// those of the app. `pipewright` is for tests and for people with a console.
const data = JSON.parse(document.getElementById("data").textContent);
const KIND = { F: 0, B: 1, I: 2, W: 3, SEND_F: 4, SEND_B: 5, REDUCE_GRAD: 8 };
const FILL = ["#56b4e9", "#0072b2", "#009e73", "#e69f00", "#cc79a7", "#9d5d81", "", "", "#d0c639", "#f0e442", "#5f6772", "#5f6772"];
const DARK = { 1: "#1c70b4", 8: "#b0a830", 10: "#9aa2ad", 11: "#9aa2ad" };
const HATCH = ["", "dots", "falling", "rising", "", "dots", "", "", "cross", "", "level", "level"];  // as in the app
const GUTTER = 92, RULER = 22, BAND = 22, MESSAGES = 10, GAP = 3, BETWEEN = 8;
const make = (name, text, parent) => {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
};

// ---- Times, as the programs write them -----------------------------------------------------------------------------

function duration(ns) {
  if (ns < 0) return "-" + duration(-ns);
  let value = ns, unit = "ns";
  for (const [name, size] of [["µs", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 6e10], ["h", 3.6e12]]) {
    if (Number((ns / size).toPrecision(3)) < 1) break;
    value = ns / size;
    unit = name;
  }
  if (unit === "ns") return `${Math.round(value)} ns`;
  const digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${unit}`;
}
const signed = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)} %`;

// ---- Tracks --------------------------------------------------------------------------------------------------------

const whole = (text) => (text ? parseInt(text, 36) : 0);
function decode(text, fromEnd) {
  const spans = [];
  if (!text) return spans;
  const last = new Map();
  let before = 0;
  for (const one of text.split(";")) {
    const [gap, time, tagText, microbatch] = one.split(",");
    const tag = whole(tagText), start = before + whole(gap);
    const length = time ? whole(time) : last.get(tag);
    last.set(tag, length);
    const [kind, stage, peer] = data.tags[tag];
    spans.push({ start, end: start + length, kind, stage, peer, microbatch: whole(microbatch) });
    before = fromEnd ? start + length : start;
  }
  return spans;
}
function decodeReasons(text) {
  const reasons = new Map();
  let at = 0;
  for (const one of text ? text.split(";") : []) {
    const [gap, ...who] = one.split(",");
    at += whole(gap);
    reasons.set(at, who);
  }
  return reasons;
}
const lanes = data.lanes.map((lane) => ({
  name: lane.name, end: lane.end, long: lane.reasons,
  ranks: lane.ranks.map(([compute, messages, reasons]) => {
    const sent = decode(messages, false);
    let latest = 0;
    for (const span of sent) span.latest = latest = Math.max(latest, span.end);
    return { compute: decode(compute, true), messages: sent, reasons: decodeReasons(reasons) };
  }),
}));
const ranks = Math.max(...lanes.map((lane) => lane.ranks.length));
const end = Math.max(1, ...lanes.map((lane) => lane.end));
const stages = 1 + Math.max(0, ...data.tags.map(([, stage]) => stage));
const several = stages > ranks;  // a rank has several stages, so blocks name theirs
const codeOf = (span) => data.kinds[span.kind][0];
const nameOf = (span) => (span.microbatch < 0 ? codeOf(span) : `${span.stage}${codeOf(span)}${span.microbatch}`);
const labelOf = (span) => (span.microbatch < 0 ? "" : `${several ? span.stage : ""}${codeOf(span)}${span.microbatch}`);
const keyOf = (rank, span) => `${rank}:${span.kind}:${span.stage}:${span.microbatch}`;
const others = [new Map(), new Map()];  // of each lane: the same action in the other one, in the order of their starts
if (lanes.length === 2) {
  lanes.forEach((lane, which) => lane.ranks.forEach((tracks, rank) => tracks.compute.forEach((span) => {
    const key = keyOf(rank, span), list = others[1 - which].get(key) || [];
    span.occurrence = list.length;
    list.push(span);
    others[1 - which].set(key, list);
  })));
}
const otherOf = (which, rank, span) => (lanes.length === 2 ? (others[which].get(keyOf(rank, span)) || [])[span.occurrence] : undefined);

// ---- The page ------------------------------------------------------------------------------------------------------

make("h1", data.title, document.body);
if (data.sentence) make("p", data.sentence, document.body).id = "sentence";
const facts = make("dl", undefined, document.body);
facts.id = "facts";
for (const [name, value] of data.facts) {
  const pair = make("div", undefined, facts);
  make("dt", name, pair);
  make("dd", value, pair);
}
const bar = make("div", undefined, document.body);
bar.id = "bar";
const legend = make("div", undefined, bar);
legend.id = "legend";
const buttons = make("div", undefined, bar);
buttons.id = "buttons";
const button = (text, title, action) => {
  const one = make("button", text, buttons);
  one.title = one.ariaLabel = title;
  one.onclick = action;
};
button("Fit", "Show the whole step (F)", () => fit());
button("−", "Zoom out (S)", () => zoom(0.5, 1.25));
button("+", "Zoom in (W)", () => zoom(0.5, 0.8));
button("◐", "Light or dark", () => setDark(!dark));
make("span", "Ctrl+wheel zooms, drag pans; W A S D, F", bar).className = "keys";
const view = make("div", undefined, document.body);
view.id = "view";
view.tabIndex = 0;
view.setAttribute("role", "application");
view.ariaLabel = "Timeline: what each rank does over the step";
const canvas = make("canvas", undefined, view), paint = canvas.getContext("2d");
const sizer = make("div", undefined, view);
const tip = make("div", undefined, document.body);
tip.id = "tip";
tip.setAttribute("role", "status");
const tables = make("div", undefined, document.body);
tables.id = "tables";
for (const table of data.tables) {
  const part = make("section", undefined, tables);
  make("h2", table.title, part);
  const body = make("table", undefined, part), head = make("tr", undefined, body);
  for (const cell of table.head) make("th", cell, head);
  for (const row of table.rows) {
    const line = make("tr", undefined, body);
    row.forEach((cell, column) => {
      const element = make("td", cell, line);
      if (table.head[column] === "error" && /^[+-].*%$/.test(cell)) element.className = parseFloat(cell) > 0 ? "slower" : "faster";
    });
  }
}

// ---- Looks ---------------------------------------------------------------------------------------------------------

let dark = matchMedia("(prefers-color-scheme: dark)").matches;
let patterns = [], colours = {};
const fillOf = (kind) => (dark && DARK[kind]) || FILL[kind];
/// Black or white, whichever reads better (WCAG 2).
function textOn(fill) {
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = [1, 3, 5].map((at) => linear(parseInt(fill.slice(at, at + 2), 16) / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
function patternOf(fill, hatch, line) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const t = tile.getContext("2d");
  t.fillStyle = fill;
  t.fillRect(0, 0, 8, 8);
  t.strokeStyle = t.fillStyle = line;
  t.lineWidth = 1.2;
  t.beginPath();
  for (const at of [-8, 0, 8]) {
    if (hatch === "rising" || hatch === "cross") t.moveTo(at, 8), t.lineTo(at + 8, 0);
    if (hatch === "falling" || hatch === "cross") t.moveTo(at, 0), t.lineTo(at + 8, 8);
  }
  if (hatch === "level") t.moveTo(0, 4), t.lineTo(8, 4);
  t.stroke();
  if (hatch === "dots") for (const [x, y] of [[1, 1], [5, 5]]) t.fillRect(x, y, 1, 1);
  return tile;
}
function setDark(wanted) {
  dark = wanted;
  document.documentElement.classList.toggle("dark", dark);
  const style = getComputedStyle(document.documentElement);
  for (const name of ["base", "alternate", "text", "faint", "grid", "bubble", "hatch", "accent", "focus"])
    colours[name] = style.getPropertyValue("--" + name).trim();
  const line = dark ? "#00000066" : "#ffffff80";
  const tiles = FILL.map((fill, kind) => (fill ? patternOf(fillOf(kind), HATCH[kind], line) : null));
  patterns = tiles.map((tile) => tile && paint.createPattern(tile, "repeat"));
  colours.idle = paint.createPattern(patternOf(colours.bubble, "rising", colours.hatch), "repeat");
  legend.textContent = "";
  const used = new Set();
  for (const lane of lanes) for (const r of lane.ranks) for (const track of [r.compute, r.messages]) for (const s of track) used.add(s.kind);
  for (const kind of [...used].sort((a, b) => a - b)) legendEntry(data.kinds[kind][1], patternOf(fillOf(kind), HATCH[kind], line));
  legendEntry("bubble", patternOf(colours.bubble, "rising", colours.hatch));
  draw();
}
function legendEntry(text, tile) {
  const entry = make("span", undefined, legend), box = make("canvas", undefined, entry);
  box.width = 16;
  box.height = 12;
  const b = box.getContext("2d");
  b.fillStyle = b.createPattern(tile, "repeat");
  b.fillRect(0, 0, 16, 12);
  make("span", text, entry);
}

// ---- Place ---------------------------------------------------------------------------------------------------------

let from = 0, to = end;  // what is shown
const laneHeight = BAND + MESSAGES, rowHeight = lanes.length * laneHeight + (lanes.length - 1) * GAP + BETWEEN;
const widthOf = () => Math.max(50, canvas.clientWidth - GUTTER - 8);
const xOf = (time) => GUTTER + ((time - from) / (to - from)) * widthOf();
const timeAt = (x) => from + ((x - GUTTER) / widthOf()) * (to - from);
function show(begin, finish) {
  const length = Math.min(end, Math.max(Math.min(200, end), finish - begin));
  from = Math.min(Math.max(0, begin), end - length);
  to = from + length;
  draw();
}
const fit = () => show(0, end);
/// Around a share of the width.
function zoom(share, factor) {
  const middle = from + share * (to - from), length = Math.min(end, Math.max(Math.min(200, end), (to - from) * factor));
  show(middle - share * length, middle + (1 - share) * length);
}
const pan = (pixels) => show(from + (pixels / widthOf()) * (to - from), to + (pixels / widthOf()) * (to - from));
const topOf = (rank, which) => RULER + rank * rowHeight + which * (laneHeight + GAP) + BETWEEN / 2;

// ---- Drawing -------------------------------------------------------------------------------------------------------

let painted = [];  // blocks of the last frame: {lane, rank, span, merged}
function firstIn(spans, time, latest) {
  let low = 0, high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((latest ? spans[middle].latest : spans[middle].end) <= time) low = middle + 1; else high = middle;
  }
  return low;
}
function drawTrack(spans, lane, rank, top, messages) {
  let right = -1e9, rightLane = [-1e9, -1e9];
  for (let i = firstIn(spans, from, messages); i < spans.length && spans[i].start < to; ++i) {
    const span = spans[i];
    if (span.end <= from) continue;
    const slot = !messages && spans[i + 1] && span.kind === KIND.F && spans[i + 1].start === span.start && spans[i + 1].end === span.end;
    const second = !messages && i > 0 && spans[i - 1].kind === KIND.F && spans[i - 1].start === span.start && spans[i - 1].end === span.end;
    const backward = span.kind === KIND.SEND_B || span.kind === KIND.REDUCE_GRAD ? 1 : 0;
    const height = messages ? MESSAGES / 2 - 1 : slot || second ? BAND / 2 : BAND;
    const y = top + (messages ? backward * (MESSAGES / 2) : second ? BAND / 2 : 0);
    const x = Math.max(GUTTER, xOf(span.start)), x2 = Math.min(GUTTER + widthOf(), xOf(span.end));
    const edge = messages ? rightLane[backward] : right, width = Math.max(x2 - x, 0.75);
    const merged = !second && x + width <= edge + 0.25;  // no pixel of its own is left
    painted.push({ lane, rank, span, merged });
    if (merged) continue;
    if (messages) rightLane[backward] = x + width; else right = x + width;
    paint.fillStyle = patterns[span.kind];
    paint.fillRect(x, y, width > 3 ? width - 0.75 : width, height);
    const label = messages || height < BAND ? "" : labelOf(span);
    if (label && width > 5 + 6.5 * label.length) {
      paint.fillStyle = textOn(fillOf(span.kind));
      paint.fillText(label, x + width / 2, y + height / 2 + 1);
    }
  }
}
function drawRuler() {
  const rough = ((to - from) / widthOf()) * 90, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  paint.textAlign = "left";
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    const x = xOf(time);
    paint.fillStyle = colours.grid;
    paint.fillRect(x, 0, 1, canvas.clientHeight);
    paint.fillStyle = colours.faint;
    paint.fillText(time === 0 ? "0" : rulerText(time, step), x + 4, RULER / 2);
  }
}
/// As exact as the distance of two marks needs.
function rulerText(time, step) {
  const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, n]) => end >= n) || ["ns", 1];
  return `${(time / size).toFixed(Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)))} ${unit}`;
}
function draw() {
  const ratio = window.devicePixelRatio || 1, width = view.clientWidth, height = view.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  sizer.style.height = `${Math.max(0, RULER + ranks * rowHeight - height)}px`;
  paint.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint.fillStyle = colours.base;
  paint.fillRect(0, 0, width, height);
  paint.font = "11px system-ui, 'Noto Sans', sans-serif";
  paint.textBaseline = "middle";
  painted = [];
  drawRuler();
  const scroll = view.scrollTop, first = Math.max(0, Math.floor(scroll / rowHeight) - 1);
  paint.save();
  paint.beginPath();
  paint.rect(0, RULER, width, height - RULER);
  paint.clip();
  for (let rank = first; rank < ranks && topOf(rank, 0) - scroll < height; ++rank) {
    lanes.forEach((lane, which) => {
      const tracks = lane.ranks[rank], top = topOf(rank, which) - scroll;
      if (!tracks) return;
      const x = Math.max(GUTTER, xOf(0)), x2 = Math.min(GUTTER + widthOf(), xOf(lane.end));
      paint.fillStyle = colours.idle;
      if (x2 > x) paint.fillRect(x, top, x2 - x, BAND);
      paint.textAlign = "center";
      drawTrack(tracks.compute, which, rank, top, false);
      drawTrack(tracks.messages, which, rank, top + BAND + 1, true);
      paint.textAlign = "left";
      paint.fillStyle = which ? colours.faint : colours.text;
      paint.fillText(which ? lane.name.split(" ")[0].slice(0, 14) : `rank ${rank}`, 8, top + BAND / 2, GUTTER - 14);
    });
  }
  paint.restore();
}

// ---- What is at the pointer ----------------------------------------------------------------------------------------

function hit(x, y) {
  if (x < GUTTER || y < RULER) return null;
  const across = y - RULER + view.scrollTop, rank = Math.floor(across / rowHeight), within = across - rank * rowHeight - BETWEEN / 2;
  const which = Math.min(lanes.length - 1, Math.max(0, Math.floor(within / (laneHeight + GAP)))), deep = within - which * (laneHeight + GAP);
  const tracks = lanes[which].ranks[rank], time = timeAt(x);
  if (!tracks || deep < 0 || deep > laneHeight || time > lanes[which].end) return null;
  const messages = deep > BAND, spans = messages ? tracks.messages : tracks.compute;
  let found = null;
  for (let i = firstIn(spans, time, messages); i < spans.length && spans[i].start <= time; ++i) {
    const backward = spans[i].kind === KIND.SEND_B || spans[i].kind === KIND.REDUCE_GRAD;
    if (spans[i].end > time && (!messages || backward === deep - BAND - 1 >= MESSAGES / 2)) {
      found = spans[i];
      if (!messages && !(deep > BAND / 2)) break;  // of a slot the forward is above
    }
  }
  return { which, rank, time, span: found, messages };
}
function lineOf(at) {
  const { which, rank, span } = at, lane = lanes[which];
  const where = span.peer >= 0 ? `rank ${rank} → rank ${span.peer}` : `rank ${rank}`;
  const lines = [`${nameOf(span)} ${data.kinds[span.kind][1]}`, `${where}, ${lane.name}: ${duration(span.end - span.start)} at ${duration(span.start)}`];
  const other = at.messages ? undefined : otherOf(which, rank, span);
  if (other) {
    const own = span.end - span.start, theirs = other.end - other.start, [before, after] = which === 0 ? [own, theirs] : [theirs, own];
    lines.push(`${lanes[1 - which].name} ${duration(theirs)}${before > 0 ? ", " + signed((after - before) / before) : ""}`);
  }
  return lines;
}
function bubbleLine(at) {
  const { which, rank, time } = at, lane = lanes[which], tracks = lane.ranks[rank], next = firstIn(tracks.compute, time, false);
  const start = next > 0 ? tracks.compute[next - 1].end : 0, finish = next < tracks.compute.length ? tracks.compute[next].start : lane.end;
  const head = `bubble of rank ${rank}, ${lane.name}: ${duration(finish - start)} at ${duration(start)}`;
  const full = lane.long[`${rank}:${start.toString(36)}`], who = tracks.reasons.get(start);
  if (full) return [head, full];
  if (!who) return [head];
  if (who.length === 2) return [head, `waits for ${who[1]}${Number(who[0]) === rank ? "" : ` of rank ${who[0]}`}`];
  return [head, `waits for the ${who[0] === "F" ? "input" : "gradient"} of stage ${who[1]}, microbatch ${who[2]}`];
}
function textAt(x, y) {
  const at = hit(x, y);
  if (!at || (at.messages && !at.span)) return [];
  return at.span ? lineOf(at) : bubbleLine(at);
}
function point(event) {
  const box = canvas.getBoundingClientRect(), lines = textAt(event.clientX - box.left, event.clientY - box.top);
  tip.textContent = "";
  lines.forEach((line, i) => make(i === 0 ? "b" : "div", line, tip));
  const width = tip.offsetWidth, height = tip.offsetHeight;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

// ---- Mouse and keys ------------------------------------------------------------------------------------------------

let drag = null;
view.addEventListener("wheel", (event) => {
  const x = event.clientX - canvas.getBoundingClientRect().left;
  if (event.ctrlKey) {
    event.preventDefault();
    zoom(Math.min(1, Math.max(0, (x - GUTTER) / widthOf())), 0.8 ** (-event.deltaY / 100));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    pan(event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX);
  }
  point(event);
}, { passive: false });
view.addEventListener("pointerdown", (event) => {
  if (event.button !== 0 || event.offsetX > canvas.clientWidth) return;
  drag = { x: event.clientX, y: event.clientY };
  view.setPointerCapture(event.pointerId);
  view.classList.add("drag");
});
view.addEventListener("pointermove", (event) => {
  if (!drag) return point(event);
  pan(drag.x - event.clientX);
  view.scrollTop += drag.y - event.clientY;
  drag = { x: event.clientX, y: event.clientY };
});
for (const name of ["pointerup", "pointercancel"]) view.addEventListener(name, () => { drag = null; view.classList.remove("drag"); });
view.addEventListener("pointerleave", () => { tip.textContent = ""; });
view.addEventListener("dblclick", (event) => {
  const box = canvas.getBoundingClientRect(), at = hit(event.clientX - box.left, event.clientY - box.top);
  if (at && at.span) show(at.span.start - (at.span.end - at.span.start), at.span.end + (at.span.end - at.span.start));
});
view.addEventListener("scroll", () => draw());
view.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const actions = {
    w: () => zoom(0.5, 0.8), s: () => zoom(0.5, 1.25), a: () => pan(-widthOf() / 8), d: () => pan(widthOf() / 8), f: fit,
    arrowleft: () => pan(-widthOf() / 8), arrowright: () => pan(widthOf() / 8), home: fit, "+": () => zoom(0.5, 0.8), "-": () => zoom(0.5, 1.25),
  };
  const action = actions[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  action();
});
function resize() {
  view.style.height = `${Math.min(RULER + ranks * rowHeight + 2, Math.max(240, Math.round(innerHeight * 0.62)))}px`;
  draw();
}
addEventListener("resize", resize);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setDark(event.matches));
setDark(dark);
resize();
window.pipewright = {
  lanes, show, fit, textAt, xOf, topOf, get shown() { return [from, to]; }, get end() { return end; }, get painted() { return painted; },
};
