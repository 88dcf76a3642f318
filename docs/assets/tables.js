// A wide table scrolls in a box of the theme's, and a figure in its paragraph; the keyboard must reach both.
new MutationObserver(() => {
  for (const box of document.querySelectorAll(
    '.md-typeset__scrollwrap:not([tabindex]), .md-typeset p:not([tabindex]):has(> img[src*="figures/"])')) box.tabIndex = 0;
}).observe(document.body, { childList: true, subtree: true });
