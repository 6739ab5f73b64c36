// Keeps a page fresh without reloading it.
//
// The server renders whole pages; this script fetches the same page again, and puts in the parts (elements with
// `data-part` and an id) that differ. While something on the page is in progress (`data-live="yes"`), server-sent events report
// changes of the store, and an unchanged page is answered with 304. A hidden tab has no stream. When the run has ended, the
// page is fetched once more and no more. A form with `data-choose` does the same with the address of its choices. After each
// round an event, `assay:round`, tells charts and logs to look for more.
"use strict";

(() => {
  const EVENTS = "/api/events";
  const FIRST_PAUSE = 1000;
  const LONGEST_PAUSE = 10000;
  const sources = new Map(); // Part id -> its HTML as the server sent it: the page itself is changed by scripts.
  let pause = FIRST_PAUSE;
  let timer = 0;
  let round = 0;
  let stream = null; // The server-sent events.
  let isFetching = false;
  let isStale = false; // Whether an event came while the page was fetched.

  const parts = (root) => root.querySelectorAll("[data-part][id]");
  const isLive = () => document.querySelector('[data-live="yes"]') !== null;
  const announce = () => document.dispatchEvent(new CustomEvent("assay:round"));

  // Times are sent in UTC, and shown in the reader's own zone.
  function localize(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = time.textContent;
      time.textContent = at.toLocaleString(undefined, {
        year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
      });
    }
  }

  function remember() {
    for (const part of parts(document)) sources.set(part.id, part.innerHTML);
    localize(document);
  }

  // A reader who stands on something keeps standing there.
  function replace(part, html, chosen) {
    const active = document.activeElement;
    const inside = part !== active && part.contains(active);
    if (inside && !chosen && active.matches("select, input:not([type=checkbox])")) return false;
    const scrolled = [...part.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    const boxes = (root) => [...root.querySelectorAll('input[type="checkbox"][name]')];
    const checked = new Set(boxes(part).filter((box) => box.checked).map((box) => `${box.name}=${box.value}`));
    const open = [...part.querySelectorAll("details[id][open]")].map((details) => details.id);
    const href = inside ? active.getAttribute("href") : null;
    const id = inside ? active.id : "";
    const label = inside ? active.getAttribute("aria-label") : null;
    part.innerHTML = html;
    localize(part);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const box of boxes(part)) if (checked.has(`${box.name}=${box.value}`)) box.checked = true;
    part.querySelectorAll(".scroll").forEach((box, at) => {
      if (scrolled[at]) [box.scrollLeft, box.scrollTop] = scrolled[at];
    });
    if (inside) {
      const same = (name, value) => value !== null && [...part.querySelectorAll(`[${name}]`)].find((e) => e.getAttribute(name) === value);
      const again = id ? document.getElementById(id) : same("href", href) || same("aria-label", label);
      if (again) again.focus({ preventScroll: true });
    }
    return true;
  }

  function take(fresh, chosen) {
    for (const part of parts(fresh)) {
      const here = document.getElementById(part.id);
      if (!here) continue;
      if (part.dataset.live) here.dataset.live = part.dataset.live;
      if (sources.get(part.id) !== part.innerHTML && replace(here, part.innerHTML, chosen)) sources.set(part.id, part.innerHTML);
    }
    for (const chart of fresh.querySelectorAll("[data-curves][id]")) {
      const here = document.getElementById(chart.id);
      if (!here) continue;
      Object.assign(here.dataset, chart.dataset);
      here.setAttribute("aria-label", chart.getAttribute("aria-label") || "");
    }
    document.title = fresh.title;
  }

  function lost(is) {
    const sign = document.getElementById("live");
    if (!sign) return;
    if (is) {
      sign.textContent = "connection lost; trying again";
      sources.delete("live");
    }
    sign.classList.toggle("lost", is);
  }

  async function refresh(address, chosen) {
    const mine = ++round;
    const response = await fetch(address, { headers: { accept: "text/html" }, cache: "no-cache" });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    if (mine !== round) return; // Overtaken by a later choice.
    take(fresh, chosen);
    announce();
  }

  function end() {
    clearTimeout(timer);
    timer = 0;
    if (stream) stream.close();
    stream = null;
  }

  // Keeps a stream of events open while the page is live and visible.
  function schedule() {
    if (!isLive() || document.visibilityState !== "visible") return end();
    if (stream || timer) return undefined;
    stream = new EventSource(EVENTS);
    stream.addEventListener("change", tick);
    stream.addEventListener("time", tick);
    stream.addEventListener("error", () => {
      end();
      lost(true);
      retry();
    });
    return undefined;
  }

  // After an error, at growing distances.
  function retry() {
    timer = setTimeout(() => {
      timer = 0;
      tick();
    }, pause);
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }

  async function tick() {
    if (isFetching) {
      isStale = true;
      return;
    }
    isFetching = true;
    try {
      do {
        isStale = false;
        await refresh(location.href, false);
      } while (isStale);
      lost(false);
      pause = FIRST_PAUSE;
      schedule();
    } catch {
      end();
      lost(true);
      retry();
    } finally {
      isFetching = false;
    }
  }

  async function choose(form) {
    // An empty value is the same as none, and makes addresses longer.
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    const address = `${form.getAttribute("action")}${query.size > 0 ? `?${query}` : ""}`;
    history.replaceState(null, "", address);
    try {
      await refresh(address, true);
    } catch {
      location.assign(address);
    }
    schedule();
  }

  remember();
  document.documentElement.classList.add("scripted");
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-choose]");
    if (form) choose(form);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-choose]")) return;
    event.preventDefault();
    choose(event.target);
  });
  // `/` goes to the search of the page.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, [contenteditable]")) return;
    const search = document.querySelector("[role=search] input");
    if (!search) return;
    event.preventDefault();
    search.focus();
    search.select();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && isLive()) tick();
    else schedule();
  });
  schedule();
})();
