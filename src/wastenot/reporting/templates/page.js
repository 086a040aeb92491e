// Draws the figures in the colours that the reader's system asks for, and again when it changes its mind.
(() => {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const specifications = read("specifications");
  const themes = read("themes");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  const drawOne = (place, theme) =>
    window
      .vegaEmbed(place, specifications[place.dataset.figure], {
        mode: "vega-lite",
        renderer: "svg",
        config: themes[theme],
        tooltip: { theme },
        actions: { export: true, source: false, compiled: false, editor: false },
        downloadFileName: place.dataset.figure,
      })
      .catch((error) => {
        place.textContent = "This figure could not be drawn: " + error;
        console.error(error);
      });

  const draw = (theme) =>
    Promise.all([...document.querySelectorAll("[data-figure]")].map((place) => drawOne(place, theme)));

  const redraw = () => draw(dark.matches ? "dark" : "light");
  dark.addEventListener("change", redraw);
  // Paper is white whatever the screen is.
  window.addEventListener("beforeprint", () => dark.matches && draw("light"));
  window.addEventListener("afterprint", () => dark.matches && redraw());
  redraw();
})();
