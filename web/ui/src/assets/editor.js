// Checks the text of the editor while it is written: the server checks it, and the result of its page takes the place of the one here.
"use strict";

(() => {
  const PAUSE = 400;
  const form = document.getElementById("editor");
  const source = document.getElementById("source");
  const result = document.getElementById("editor-result");
  let timer = 0;
  let round = 0;

  async function check() {
    const mine = ++round;
    const body = new URLSearchParams({ source: source.value });
    try {
      const response = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("editor-result");
      if (mine === round && fresh) result.innerHTML = fresh.innerHTML;
    } catch {
      if (mine === round) result.textContent = "The server cannot be reached; the text was not checked.";
    }
  }

  source.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE);
  });
  // A problem leads to its place in the text.
  result.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-line]");
    if (!link) return;
    event.preventDefault();
    const lines = source.value.split("\n").slice(0, Number(link.dataset.line) - 1);
    const at = lines.reduce((sum, line) => sum + line.length + 1, 0) + Number(link.dataset.column) - 1;
    source.focus();
    source.setSelectionRange(at, at);
  });
})();
