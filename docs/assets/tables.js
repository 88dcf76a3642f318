// A wide table scrolls in a box of the theme's; the keyboard must reach it.
new MutationObserver(() => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) box.tabIndex = 0;
}).observe(document.body, { childList: true, subtree: true });
