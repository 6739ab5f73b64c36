// Keeps a page fresh without reloading it.
//
// The server renders whole pages; this script fetches the same page again, and puts in the parts (elements with
// `data-part` and an id) that differ. While something on the page is under way (`data-live="yes"`) it does so every
// second, except in a hidden tab; when it has ended, once more and no more. A form with `data-choose` does the same with
// the address of its choices. After each round an event, `assay:round`, tells charts and logs to look for more.
"use strict";

(() => {
  const EVERY = 1000;
  const LONGEST_PAUSE = 10000;
  const sources = new Map(); // Part id -> its HTML as the server sent it: the page itself is changed by scripts.
  let pause = EVERY;
  let timer = 0;
  let round = 0;

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
    if (inside && !chosen && active.matches("select, input")) return false;
    const scrolled = [...part.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    const href = inside ? active.getAttribute("href") : null;
    const id = inside ? active.id : "";
    part.innerHTML = html;
    localize(part);
    part.querySelectorAll(".scroll").forEach((box, at) => {
      if (scrolled[at]) [box.scrollLeft, box.scrollTop] = scrolled[at];
    });
    if (inside) {
      const again = id ? document.getElementById(id) : [...part.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === href);
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
    const response = await fetch(address, { headers: { accept: "text/html" }, cache: "no-store" });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    if (mine !== round) return; // Overtaken by a later choice.
    take(fresh, chosen);
    announce();
  }

  function schedule() {
    clearTimeout(timer);
    if (isLive() && document.visibilityState === "visible") timer = setTimeout(tick, pause);
  }

  async function tick() {
    try {
      await refresh(location.href, false);
      lost(false);
      pause = EVERY;
    } catch {
      lost(true);
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
    schedule();
  }

  async function choose(form) {
    const query = new URLSearchParams(new FormData(form));
    const address = `${form.getAttribute("action")}?${query}`;
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
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && isLive()) tick();
    else clearTimeout(timer);
  });
  schedule();
})();
