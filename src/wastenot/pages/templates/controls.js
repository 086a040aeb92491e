// Buttons that copy commands, and folded parts that paper shows.
(() => {
  "use strict";
  for (const block of document.querySelectorAll(".command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const code = block.querySelector("code");
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

  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("main details:not([open]):not(.chart *)")];
    closed.forEach((each) => (each.open = true));
  });
  window.addEventListener("afterprint", () => closed.forEach((each) => (each.open = false)));
})();
