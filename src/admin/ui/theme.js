// The colours of the last visit, before anything is drawn. The button that changes them is in app.js.
(() => {
  const kept = (() => {
    try {
      return localStorage.getItem("crawlgate-theme");
    } catch {
      return null; // storage is switched off: the system's colours
    }
  })();
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
