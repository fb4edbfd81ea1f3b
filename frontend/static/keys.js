// Keys, the palette that goes anywhere, and times in local time. Without it every place is a link in the rail.
"use strict";
{
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const el = (id) => document.getElementById(id);
  const kept = (name, value) => {
    try {
      if (value !== undefined) localStorage.setItem(name, value);
      return localStorage.getItem(name);
    } catch {
      return null; // a browser may keep nothing
    }
  };

  // ---- palette -------------------------------------------------------------------------------------------------

  const several = () => new URLSearchParams(location.search).get("cluster");
  function here(path) {
    const url = new URL(path, location.origin);
    if (several() && !url.searchParams.has("cluster")) url.searchParams.set("cluster", several());
    return url.href;
  }

  // What the typed words may mean: a number, a name of a machine, a card, a run
  function guesses(words) {
    const name = encodeURIComponent(words);
    const found = [];
    if (/^\d{1,15}$/.test(words)) found.push([`Incident ${words}`, `/incidents/${words}`]);
    if (/^(GPU-|MIG-|pci:)/.test(words)) found.push([`Device ${words}`, `/devices/${name}`]);
    else if (/\d/.test(words) && !/^\d+$/.test(words)) found.push([`Node ${words}`, `/nodes/${name}`]);
    const run = /^\S+$/.test(words) ? [[`Run or job ${words}`, `/runs/${name}`]] : [];
    const offer = ([text, path]) => ({ text, href: here(path), go: () => location.assign(here(path)) });
    return [found.map(offer), run.map(offer)]; // a run may be called anything, so it stands last
  }

  // Places of the rail, what stands on this page, and what can be done here
  function offers() {
    const links = all(".rail li a[href^='/'], main a[href^='/']").filter((a) => !a.hasAttribute("download"));
    const seen = new Set();
    const found = [];
    for (const a of links) {
      const text = (a.firstChild?.nodeType === 3 ? a.firstChild.data : a.innerText).trim().replace(/\s+/g, " ");
      if (!text || seen.has(text + a.href)) continue;
      seen.add(text + a.href);
      found.push({ text, href: a.href, go: () => a.click() });
    }
    for (const b of all("main button[id]:not(:disabled), .bar button[id]")) {
      if (!b.offsetParent || b.closest("dialog")) continue;
      found.push({ text: b.innerText.trim(), href: "", go: () => b.click() });
    }
    return found;
  }

  let shown = [],
    at = 0;

  function list() {
    const words = el("palette-words").value.trim();
    const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = offers().filter(({ text }) => parts.every((part) => text.toLowerCase().includes(part)));
    const [first, last] = words ? guesses(words) : [[], []];
    shown = [...first, ...fits.slice(0, 11 - first.length), ...last];
    at = 0;
    el("palette-list").replaceChildren(
      ...shown.map(({ text, href }, n) => {
        const row = document.createElement("li");
        const where = document.createElement("span");
        row.id = `palette-${n}`;
        row.setAttribute("role", "option");
        row.textContent = text;
        where.className = "dim";
        where.textContent = href ? new URL(href).pathname : "do it";
        row.append(" ", where);
        row.addEventListener("click", () => choose(n));
        return row;
      }),
    );
    el("palette-none").hidden = shown.length > 0;
    mark();
  }

  function mark() {
    all("#palette-list li").forEach((row, n) => row.setAttribute("aria-selected", n === at));
    if (shown.length) el("palette-words").setAttribute("aria-activedescendant", `palette-${at}`);
    else el("palette-words").removeAttribute("aria-activedescendant");
    el(`palette-${at}`)?.scrollIntoView({ block: "nearest" });
  }

  function choose(n) {
    const one = shown[n];
    el("palette").close();
    one?.go();
  }

  function steer(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && shown.length) {
      at = (at + step + shown.length) % shown.length;
      mark();
    } else if (event.key === "Enter") choose(at);
    else return;
    event.preventDefault();
  }

  function palette() {
    if (document.querySelector("dialog[open]")) return;
    el("palette").showModal();
    el("palette-words").value = "";
    el("palette-words").focus();
    list();
  }

  function help() {
    if (document.querySelector("dialog[open]")) return;
    el("help").showModal();
    document.querySelector("#help [data-close]").focus({ preventScroll: true });
  }

  // ---- keys ----------------------------------------------------------------------------------------------------

  const GO = { n: "/", f: "/fleet", i: "/incidents", l: "/alerts", a: "/actions", e: "/exclusions", r: "/runs" };
  Object.assign(GO, { y: "/reliability", k: "/storage", p: "/planner", s: "/system", t: "/settings", b: "/backtest" });
  let going = 0;

  // j and k walk over the rows of lists; Enter then follows the link, as everywhere
  function walk(step) {
    const rows = all("main table.fold th[scope=row] a[href], main ol.stack a.what, main .ask h2 a");
    if (!rows.length) return;
    const now = rows.indexOf(document.activeElement);
    rows[now < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, now + step))].focus();
  }

  const KEYS = {
    "?": help,
    "/": palette,
    j: () => walk(1),
    k: () => walk(-1),
    t: () => document.querySelector(".tool.theme")?.click(),
    u: () => zone(),
    c: () => el("copy-link")?.click(),
    m: () => el("copy-markdown")?.click(),
    g: () => (going = Date.now()),
  };

  function pressed(event) {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      return palette();
    }
    const typing = event.target.closest("input, textarea, select, [contenteditable], dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || kept("keys") === "off") return;
    const gone = Date.now() - going < 1500 && GO[event.key];
    going = 0;
    if (gone) location.assign(here(gone));
    else if (!KEYS[event.key]) return;
    else KEYS[event.key]();
    event.preventDefault();
  }

  // ---- times: what says UTC is turned into local time and says so ------------------------------------------------

  const written = new WeakMap(); // text node -> as the server wrote it
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const DAY = /(?:(\d{4})-(\d\d)-(\d\d)\s)?(?:(\d{1,2})\s([A-Z][a-z]{2}) )?/.source;
  const STAMP = new RegExp(DAY + /(\d\d):(\d\d)(:\d\d)?\sUTC/.source, "g");
  const HALF_DAY = 43200000,
    RAW = "[data-figure], code, pre, textarea, script";
  const isLocal = () => kept("zone") === "local";

  function turned(now) {
    return (whole, year, month, day, date, name, h, m, s) => {
      const when = new Date(now);
      if (year) when.setUTCFullYear(+year, month - 1, +day);
      if (name && MONTHS.includes(name)) when.setUTCMonth(MONTHS.indexOf(name), +date);
      when.setUTCHours(+h, +m, s ? +s.slice(1) : 0, 0);
      if (!year && when - now > HALF_DAY) {
        if (name) when.setUTCFullYear(when.getUTCFullYear() - 1);
        else when.setTime(when - 2 * HALF_DAY);
      }
      const time = { hour: "2-digit", minute: "2-digit", hour12: false, timeZoneName: "short" };
      if (s) time.second = "2-digit";
      const far = year || name ? { day: "numeric", month: "short" } : {};
      return when.toLocaleString("en-GB", { ...(year ? { year: "numeric" } : {}), ...far, ...time });
    };
  }

  function times() {
    const stamp = document.querySelector(".stamp time");
    if (!stamp) return;
    const turn = turned(new Date(stamp.dateTime));
    const nodes = document.createTreeWalker(el("main"), NodeFilter.SHOW_TEXT);
    for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
      const was = written.get(node);
      if (!isLocal()) {
        if (was !== undefined) {
          node.data = was;
          written.delete(node);
        }
      } else if (was === undefined && node.data.includes("UTC") && !node.parentElement.closest(RAW)) {
        const next = node.data.replace(STAMP, turn);
        if (next !== node.data) {
          written.set(node, node.data);
          node.data = next;
        }
      }
    }
    const button = el("zone");
    button.textContent = isLocal() ? "Local" : "UTC";
    button.setAttribute("aria-pressed", isLocal());
  }

  function zone() {
    kept("zone", isLocal() ? "utc" : "local");
    times();
  }

  function start() {
    el("zone").hidden = el("help-open").hidden = el("palette-open").hidden = false;
    el("zone").addEventListener("click", zone);
    el("help-open").addEventListener("click", help);
    el("palette-open").addEventListener("click", palette);
    el("palette-words").addEventListener("input", list);
    el("palette-words").addEventListener("keydown", steer);
    el("single-keys").checked = kept("keys") !== "off";
    el("single-keys").addEventListener("change", ({ target }) => kept("keys", target.checked ? "on" : "off"));
    document.addEventListener("keydown", pressed);
    document.addEventListener("renewed", times);
    times();
    if (el("tour")) {
      el("tour").hidden = kept("toured") === "yes";
      el("tour-done").addEventListener("click", () => {
        kept("toured", "yes");
        el("tour").hidden = true;
      });
    }
  }
  addEventListener("DOMContentLoaded", start);
}
