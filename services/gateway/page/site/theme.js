// Before anything is painted: the theme that was chosen, else the system's.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("tandem.theme");
  } catch {
    // Storage is off: the system's.
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = chosen ?? (dark ? "dark" : "light");
})();
