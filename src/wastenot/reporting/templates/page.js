// Draws the figures in the reader's colour scheme, and again when that changes.
(() => {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const specifications = read("specifications");
  const themes = read("themes");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  const drawOne = (element, theme) =>
    window
      .vegaEmbed(element, specifications[element.dataset.figure], {
        mode: "vega-lite",
        renderer: "svg",
        config: themes[theme],
        tooltip: { theme },
        actions: { export: true, source: false, compiled: false, editor: false },
        downloadFileName: element.dataset.figure,
      })
      .catch((error) => {
        element.textContent = "This figure could not be drawn: " + error;
        console.error(error);
      });

  const draw = (theme) =>
    Promise.all([...document.querySelectorAll("[data-figure]")].map((element) => drawOne(element, theme)));

  const redraw = () => draw(dark.matches ? "dark" : "light");
  dark.addEventListener("change", redraw);
  // Paper is white, whatever the screen.
  window.addEventListener("beforeprint", () => dark.matches && draw("light"));
  window.addEventListener("afterprint", () => dark.matches && redraw());
  redraw();
})();
