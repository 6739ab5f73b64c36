// Follows a log: after each round of `live.js`, the lines that are new are put at its end.
"use strict";

(() => {
  const MOST_LINES = 5000;
  const PAGE = 1000;
  const log = document.getElementById("log");
  const follow = document.getElementById("follow");
  if (!log) return;
  let busy = false;

  function span(name, text, title) {
    const made = document.createElement("span");
    made.className = name;
    made.textContent = text;
    if (title) made.title = title;
    return made;
  }

  function item(line) {
    const made = document.createElement("li");
    made.dataset.level = line.level;
    const at = new Date(line.at).toISOString();
    made.append(
      span("when", at.slice(11, 23), at), " ", span("epoch", line.epoch, "attempt"), " ",
      span("level", line.level), " ", span("text", line.text),
    );
    return made;
  }

  const toEnd = () => {
    if (!follow || follow.checked) log.scrollTop = log.scrollHeight;
  };

  async function more() {
    if (busy) return;
    busy = true;
    try {
      for (let full = true; full; ) {
        const response = await fetch(`${log.dataset.log}?after=${log.dataset.next}&limit=${PAGE}`, { cache: "no-store" });
        if (!response.ok) break;
        const { lines, next } = await response.json();
        log.append(...lines.map(item));
        while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
        log.dataset.next = next;
        full = lines.length === PAGE;
        if (lines.length > 0) toEnd();
      }
    } catch {
      // The page says that the connection is lost.
    } finally {
      busy = false;
    }
  }

  // Scrolling up by hand stops following; scrolling to the end begins again.
  log.addEventListener("scroll", () => {
    if (follow) follow.checked = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  });
  if (follow) follow.addEventListener("change", toEnd);
  document.addEventListener("assay:round", more);
  toEnd();
})();
