// Draws the figures in the reader's colour scheme and for the width of the page, and again when one of these changes.
(() => {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const { datasets, figures } = read("specifications");
  const themes = read("themes");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const small = window.matchMedia("(max-width: 860px)"); // where page.css lets the margins go

  const drawOne = (element, theme, form) => {
    element.classList.toggle("narrow", form === "narrow");
    return window
      .vegaEmbed(element, { ...figures[element.dataset.figure][form], datasets }, {
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
  };

  const draw = (theme, form) =>
    Promise.all([...document.querySelectorAll("[data-figure]")].map((element) => drawOne(element, theme, form)));

  const redraw = () => draw(dark.matches ? "dark" : "light", small.matches ? "narrow" : "wide");
  dark.addEventListener("change", redraw);
  small.addEventListener("change", redraw);
  // Paper is white and wide, whatever the screen.
  window.addEventListener("beforeprint", () => (dark.matches || small.matches) && draw("light", "wide"));
  window.addEventListener("afterprint", () => (dark.matches || small.matches) && redraw());
  redraw();
})();
