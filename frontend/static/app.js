// Behaviour of the pages: figures, live refresh that never loses typed text, dialogs, theme. Works without, too.
"use strict";

const root = document.documentElement;
root.classList.add("draws"); // a figure that is on its way does not say that it is missing
const find = (selector, within = document) => [...within.querySelectorAll(selector)];
const NARROW = matchMedia("(max-width: 48rem)"),
  DARK = matchMedia("(prefers-color-scheme: dark)");

// The page forbids inline styles. Plotly writes some by attribute; the same text through the CSSOM is allowed.
const setAttribute = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
  if (name === "style") this.style.cssText = value;
  else setAttribute.call(this, name, value);
};

// ---- theme -------------------------------------------------------------------------------------------------------

const theme = () => root.dataset.theme || (DARK.matches ? "dark" : "light");

function flipTheme(event) {
  event.preventDefault();
  const next = theme() === "dark" ? "light" : "dark";
  root.dataset.theme = next;
  document.cookie = `theme=${next}; path=/; max-age=31536000; samesite=lax`;
  drawAll();
}

// ---- figures -----------------------------------------------------------------------------------------------------

const CONFIG = { displayModeBar: false, responsive: true, displaylogo: false, doubleClick: "reset" };
const CELL_PX = 18; // a small fleet keeps small cells

function address(path, more = {}) {
  const url = new URL(path, location.href);
  url.searchParams.set("theme", theme());
  if (NARROW.matches) url.searchParams.set("narrow", "1");
  for (const [key, value] of Object.entries(more)) url.searchParams.set(key, value);
  return url;
}

async function draw(el, again = false) {
  const answer = window.Plotly && (await fetch(address(el.dataset.figure)).catch(() => null));
  const text = answer?.ok ? await answer.text() : "";
  if (!text) return el.classList.add("failed"); // says that it is not drawn, unless it was before
  const key = `${theme()} ${el.clientWidth} ${text}`;
  if (!el.isConnected || (el.drawn === key && !again)) return;
  const figure = JSON.parse(text);
  size(el, figure);
  el.querySelector(".missing")?.remove();
  el.drawn = key;
  await Plotly.react(el, figure.data, figure.layout, CONFIG);
  if (figure.layout.meta?.map && !el.read) readable(el);
  el.dataset.drawn = theme();
}

// A rack map keeps its cells square; other figures may say how tall they are
function size(el, { data, layout }) {
  const map = layout.meta?.map;
  if (layout.meta?.height) layout.height = layout.meta.height;
  el.map = map;
  if (!map) return;
  const room = el.clientWidth - map.left,
    cell = Math.min(CELL_PX, room / (map.columns + 2 * map.edge)),
    from = -0.5 - map.edge;
  layout.height = Math.round(cell * (map.rows + 2 * map.edge)) + 12;
  layout.xaxis.range = [from, from + room / cell];
  data[0].xgap = data[0].ygap = cell >= 5 ? 1 : 0;
}

const names = new Map(); // version -> racks and nodes, block by block

async function namesOf(el) {
  const { names: version } = el.map;
  const url = address(el.dataset.figure.replace(/[^/]*\.json/, "names.json"), { v: version });
  url.searchParams.delete("theme");
  if (!names.has(url.href)) names.set(url.href, fetch(url).then((answer) => answer.json()));
  return names.get(url.href);
}

// Which node and GPU stands at a cell: the layout rule of the server, read backwards
async function cellAt(el, { x, y, z }) {
  const { wide, tall, across, perNode } = el.map,
    { blocks, states } = await namesOf(el);
  const block = blocks[Math.floor(y / (tall + 1)) * across + Math.floor(x / (wide + 1))];
  const column = x % (wide + 1),
    row = y % (tall + 1);
  const node = block?.[1][perNode ? row * wide + column : row];
  if (!node || z < 1) return null;
  const parts = [node, perNode ? "worst of its GPUs" : `GPU ${column}`, block[0] && `rack ${block[0]}`, states[z - 1]];
  return { rack: block[0], text: parts.filter(Boolean).join(" · ") };
}

function readable(el) {
  el.read = true;
  const out = document.getElementById(el.id + "-readout");
  const read = async (event) => {
    const cell = await cellAt(el, event.points[0]);
    if (cell && out) out.textContent = cell.text;
    return cell;
  };
  el.on("plotly_hover", read);
  el.on("plotly_click", async (event) => {
    const cell = await read(event);
    if (!cell?.rack || !el.dataset.zoom || !matchMedia("(pointer: fine)").matches) return;
    const url = new URL(el.dataset.zoom, location.href);
    url.searchParams.set("rack", cell.rack);
    location.assign(url);
  });
}

const drawAll = (again) => find("[data-figure]").forEach((el) => draw(el, again));

// ---- live: names of changes come by SSE, the page fetches itself and takes over what differs ----------------------

const served = new WeakMap(); // region -> its HTML as the server wrote it
const remember = () => find(".live").forEach((el) => served.has(el) || served.set(el, el.outerHTML));

const typing = (el) =>
  el.querySelector("dialog[open]") ||
  el.matches("dialog[open]") ||
  (el.contains(document.activeElement) && document.activeElement.matches("input, textarea, select"));

// What the reader opened or typed goes along into the new region
function carry(from, to) {
  const within = (el, selector) => (el.matches(selector) ? [el, ...find(selector, el)] : find(selector, el));
  for (const el of within(from, "details[open][id]")) within(to, "#" + el.id).forEach((next) => (next.open = true));
  for (const el of within(from, "input[id], textarea[id]")) {
    if (el.value !== el.defaultValue) within(to, "#" + el.id).forEach((next) => (next.value = el.value));
  }
}

function focusOf(el) {
  const at = document.activeElement;
  if (!el.contains(at)) return null;
  return at.id ? `#${CSS.escape(at.id)}` : at.getAttribute("href") && `[href="${CSS.escape(at.getAttribute("href"))}"]`;
}

// New rows wait behind a button while somebody reads the list
function held(here, next) {
  if (!here.hasAttribute("data-hold")) return false;
  const known = new Set(find("[data-row]", here).map((row) => row.dataset.row));
  const fresh = find("[data-row]", next).filter((row) => !known.has(row.dataset.row)).length;
  const button = document.getElementById("new-rows");
  if (!fresh || !button) return false;
  button.textContent = `${fresh} new`;
  button.hidden = false;
  button.onclick = () => {
    button.hidden = true;
    replace(here, next, next.outerHTML);
  };
  return true;
}

function replace(here, next, html) {
  const focus = focusOf(here);
  carry(here, next);
  here.replaceWith(next);
  served.set(next, html);
  find(".live", next).forEach((el) => served.set(el, el.outerHTML));
  htmx.process(next);
  if (focus) document.querySelector(focus)?.focus({ preventScroll: true });
}

function renew(text, only = ".live:not(#told)") {
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const here of find(only)) {
    const next = page.getElementById(here.id);
    if (!next || !here.isConnected) continue;
    if (here.dataset.keep === "drawn" && next.dataset.keep === "drawn") continue; // its inner regions renew themselves
    const html = next.outerHTML;
    if (served.get(here) === html || typing(here) || held(here, next)) continue;
    replace(here, document.adoptNode(next), html);
  }
  if (only !== "#told") document.title = page.title;
  local();
  document.dispatchEvent(new Event("renewed"));
  drawAll();
}

let newest = Date.now(),
  due = 0,
  dirty = false;

function refresh() {
  due = 0;
  if (document.hidden) dirty = true;
  else htmx.trigger("#refresh", "renew");
}
const soon = (ms = 1000) => (due ||= setTimeout(refresh, ms));

function listen() {
  let down = false;
  const feed = new EventSource(`/live?after=${document.getElementById("refresh").dataset.live}`);
  feed.onopen = () => {
    if (down) soon(0);
    down = false;
  };
  feed.onmessage = () => soon();
  feed.onerror = () => (down = true);
  addEventListener("pagehide", () => feed.close());
  setInterval(() => {
    if (down || Date.now() - newest > 30000) soon(0);
    local();
  }, 5000);
}

function answered({ detail }) {
  const { xhr, requestConfig } = detail;
  if (!xhr?.responseText) return;
  const form = requestConfig.elt.tagName === "FORM" ? requestConfig.elt : null;
  form?.closest("dialog")?.close();
  if (xhr.status === 200) {
    newest = Date.now();
    form?.reset();
    renew(xhr.responseText);
    if (form) renew(xhr.responseText, "#told");
  } else if (form) {
    renew(xhr.responseText, "#told"); // what was typed stays; the answer says why nothing happened
    soon(0);
  }
  if (form) document.getElementById("told")?.scrollIntoView({ block: "nearest" });
}

// ---- bar, dialogs, links -----------------------------------------------------------------------------------------

function local() {
  for (const stamp of find(".stamp")) {
    const at = new Date(stamp.querySelector("time").dateTime),
      old = Math.round((Date.now() - newest) / 1000);
    const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
    const words = old > 60 ? `, ${Math.floor(old / 60)} min old` : at.getTimezoneOffset() ? ` · ${clock} local` : "";
    stamp.classList.toggle("stale", old > 60);
    const out = stamp.querySelector(".local");
    if (out.textContent !== words) out.textContent = words;
  }
}

function open(id) {
  const dialog = document.getElementById(id);
  if (!dialog || dialog.open) return;
  dialog.showModal();
  dialog.querySelector("[data-close]")?.focus();
}

// The address, or what stands at an address of ours
async function copy(button) {
  const words = (button.dataset.words ||= button.textContent),
    from = button.dataset.copy;
  const answer = from && (await fetch(from).catch(() => null));
  const text = from ? answer?.ok && (await answer.text()) : location.href;
  const done = text && (await navigator.clipboard.writeText(text).then(() => true).catch(() => false)); // may be denied
  button.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => (button.textContent = words), 2000);
}

function clicked(event) {
  const el = event.target.closest("[data-open], [data-close], [data-copy]");
  if (!el) return;
  if (el.dataset.open) open(el.dataset.open);
  else if ("copy" in el.dataset) {
    event.preventDefault();
    copy(el);
  } else el.closest("dialog").close();
}

// Above one node the button stays shut until the name stands there
function typed({ target }) {
  const button = target.dataset.type && target.form.querySelector(".primary");
  if (button) button.disabled = target.value.trim() !== target.dataset.type;
}

function start() {
  remember();
  local();
  document.body.addEventListener("htmx:afterRequest", answered);
  document.addEventListener("click", clicked);
  document.addEventListener("input", typed);
  document.querySelector(".theme-form")?.addEventListener("submit", flipTheme);
  document.addEventListener("visibilitychange", () => !document.hidden && dirty && ((dirty = false), soon(0)));
  DARK.addEventListener("change", () => drawAll());
  let resized = 0;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(drawAll, 200, true);
  });
  drawAll();
  if (location.hash === "#review") open("approve");
  if (document.getElementById("refresh").dataset.live) listen();
}
addEventListener("DOMContentLoaded", start);
