// The live part of nsqadmin's pages. They are complete without it.
//
// The server sends the page's #live element again whenever its figures change; `morph` changes what differs. So focus,
// scrolling and open details stay as they are.

import { drawCharts } from "./charts.js";

const KEPT = new Set(["open", "data-drawn"]); // attributes that the reader changes, not the server
const RETRY_MS = 2000;
const RELOAD_MS = 10000;

/** Changes `old` into `fresh`, and keeps every node that is in both. */
function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
  if (old.hasAttribute("data-drawn")) return; // its content is a chart
  const keyed = new Map([...old.children].filter((node) => node.id).map((node) => [node.id, node]));
  let next = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const same = wanted.id ? keyed.get(wanted.id) : next && !next.id ? next : null;
    if (same && same.nodeName === wanted.nodeName) {
      if (same === next) next = next.nextSibling;
      else old.insertBefore(same, next);
      morph(same, wanted);
    } else {
      old.insertBefore(document.importNode(wanted, true), next);
    }
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function show(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("live");
  const live = document.getElementById("live");
  if (!fresh || !live) return;
  morph(live, fresh);
  drawCharts(live);
}

// -- events of the server

const pulse = document.getElementById("pulse");
let events = null;
let retry = 0;

function say(state, text) {
  if (!pulse || pulse.dataset.state === state) return;
  pulse.dataset.state = state;
  pulse.textContent = text;
}

function listen() {
  const live = document.getElementById("live");
  if (!live?.dataset.live || document.hidden) return;
  hush();
  const source = (events = new EventSource(live.dataset.live));
  source.addEventListener("open", () => say("live", "Live"));
  source.addEventListener("page", (event) => {
    say("live", "Live");
    show(event.data);
  });
  source.addEventListener("leave", () => location.reload());
  source.addEventListener("error", () => {
    const isStill = pulse?.dataset.state === "still";
    if (!isStill) say("lost", "Connection lost, trying again");
    if (source.readyState !== EventSource.CLOSED) return;
    // The server answered with something else than events. It may want a login, or have too many live pages; a proxy
    // may have lost the server.
    clearTimeout(retry);
    retry = setTimeout(reload, isStill ? RELOAD_MS : RETRY_MS);
  });
}

/** Loads the page as a whole, and then tries again to have it live. */
async function reload() {
  const answer = await fetch(location.href, { redirect: "manual", headers: { Accept: "text/html" } }).catch(() => null);
  if (answer?.type === "opaqueredirect" || answer?.status === 403) {
    location.reload();
    return;
  }
  if (answer?.ok) {
    show(await answer.text());
    say("still", "Not live, loaded every 10 seconds");
  } else {
    say("lost", "Connection lost, trying again");
  }
  listen();
}

function hush() {
  clearTimeout(retry);
  events?.close();
  events = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? hush() : listen()));
addEventListener("pagehide", hush);
addEventListener("pageshow", listen);

// -- filters and links that change only #live

let waiting = 0;

async function go(url) {
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) {
    location.assign(url);
    return;
  }
  history.replaceState(null, "", url);
  show(await answer.text());
  listen();
}

document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-filter]");
  if (!form) return;
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const values = [...new FormData(form)].filter(([, value]) => value !== "");
    const query = new URLSearchParams(values).toString();
    go(form.action.split("?")[0] + (query && `?${query}`)).catch(() => say("lost", "Connection lost, trying again"));
  }, 250);
});

// -- the counter counts on between two answers, as fast as messages come

const calm = matchMedia("(prefers-reduced-motion: reduce)");
let counting = null;

function count() {
  const output = document.getElementById("count");
  if (!output) return;
  const told = Number(output.dataset.count);
  if (counting?.told !== told) {
    // The number shown never goes back by a little: it waits for the others to come up.
    const shown = counting ? counting.shown : told;
    counting = { told, at: performance.now(), rate: Number(output.dataset.rate), shown: told < shown * 0.9 ? told : Math.max(shown, told) };
  }
  const due = told + (counting.rate * (performance.now() - counting.at)) / 1000;
  counting.shown = calm.matches ? told : Math.max(counting.shown, Math.floor(due));
  output.textContent = new Intl.NumberFormat("en").format(counting.shown);
  requestAnimationFrame(count);
}

count();

// -- light and dark

const switcher = document.getElementById("theme");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function label() {
  switcher.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
}

if (switcher) {
  switcher.hidden = false;
  label();
  switcher.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("nsqadmin-theme", theme);
    label();
    drawCharts(document, true);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    label();
    drawCharts(document, true);
  });
}

// -- a notice is shown once

const address = new URL(location.href);
if (address.searchParams.has("notice")) {
  address.searchParams.delete("notice");
  history.replaceState(null, "", address);
}

// -- the local time zone of a moment

for (const time of document.querySelectorAll("time[datetime]")) {
  const at = new Date(time.dateTime);
  if (!Number.isNaN(at.getTime())) time.title = at.toLocaleString();
}

// -- a dangerous button waits for the name to be typed

for (const input of document.querySelectorAll("input[data-expected]")) {
  const button = input.form.querySelector("button[type=submit]");
  const check = () => (button.disabled = input.value !== input.dataset.expected);
  input.addEventListener("input", check);
  check();
}

drawCharts(document);
