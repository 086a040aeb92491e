// Buttons that copy commands, commands that break between words only, long tables on phones, and what paper shows.
(() => {
  "use strict";
  const LONG = 32; // characters of a word that must break on a phone
  for (const block of document.querySelectorAll(".command")) {
    const code = block.querySelector("code");
    const words = code.textContent.split(/(\s+)/).map((word) => {
      const part = document.createElement("span");
      part.textContent = word;
      return /\S/.test(word) && word.length < LONG ? part : word;
    });
    code.replaceChildren(...words);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent.trim());
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code); // no access to the clipboard: ready to be copied by hand
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    block.append(button);
  }

  const SHOWN = 5; // rows of a table on a phone, until more are asked for
  for (const table of document.querySelectorAll("main table")) {
    const rows = [...table.querySelectorAll("tbody tr")];
    const more = rows.filter((row) => !row.matches(".note, .group")).length - SHOWN;
    if (more < 2) continue;
    let seen = 0;
    rows.forEach((row) => row.classList.toggle("beyond", (row.matches(".note, .group") ? seen : ++seen) > SHOWN));
    const button = document.createElement("button");
    button.type = "button";
    button.className = "more";
    button.textContent = `Show ${more} more`;
    button.addEventListener("click", () => {
      table.classList.add("whole");
      button.remove();
    });
    table.after(button);
  }

  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("main details:not([open]):not(.chart *)")];
    closed.forEach((each) => (each.open = true));
  });
  window.addEventListener("afterprint", () => closed.forEach((each) => (each.open = false)));
})();
