// Applies the colours of the last visit before anything is drawn. app.js has the button that changes them.
(() => {
  const saved = (() => {
    try {
      return localStorage.getItem("crawlgate-theme");
    } catch {
      return null; // storage is disabled: use the system's colours
    }
  })();
  if (saved === "light" || saved === "dark") document.documentElement.dataset.theme = saved;
})();
