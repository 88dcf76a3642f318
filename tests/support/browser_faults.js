// A line for whatever is wrong with the layout of a page: what is too wide, clipped, too small or broken.
(smallest) => {
  const found = [], slack = 1.5;
  const named = (e) => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "")
    + (typeof e.className === "string" && e.className ? "." + e.className.trim().split(/\s+/).join(".") : "");
  const said = (e) => `<${named(e)}> "${(e.textContent || "").trim().replace(/\s+/g, " ").slice(0, 50)}"`;
  const style = (e) => getComputedStyle(e);
  const shown = (e) => e.checkVisibility({visibilityProperty: true, opacityProperty: true})
    && e.getBoundingClientRect().width > 1 && e.getBoundingClientRect().height > 1;
  const screen = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > screen + slack)
    found.push(`the page is ${document.documentElement.scrollWidth} px wide on a screen of ${screen}`);
  // what may be wider than its place: whatever is in a box that scrolls, is drawn by a script, or is placed freely
  const free = (e) => ["absolute", "fixed", "sticky"].includes(style(e).position);
  for (const e of document.body.querySelectorAll("*")) {
    if (!shown(e) || e.closest("svg svg, svg *, [data-drawn]")) continue;
    const box = e.getBoundingClientRect();
    for (let up = e.parentElement; up; up = up.parentElement) {
      const flow = style(up).overflowX, outer = up.getBoundingClientRect();
      if (free(e) || free(up) || flow === "auto" || flow === "scroll") break;
      if (flow !== "visible" && box.right > outer.right + slack) {
        found.push(`${said(e)} is clipped by <${named(up)}>`);
        break;
      }
      if (up === e.parentElement && style(up).display !== "inline" && style(up).display !== "contents"
          && box.right > outer.right + slack && box.width > 0) {
        found.push(`${said(e)} is ${Math.round(box.right - outer.right)} px wider than <${named(up)}>`);
        break;
      }
    }
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = texts.nextNode()); ) {
    const e = node.parentElement;
    if (!node.data.trim() || !e || !shown(e) || e.closest("script, style, noscript, svg, [data-drawn]")) continue;
    const size = parseFloat(style(e).fontSize);
    if (size < smallest - 0.01) found.push(`${said(e)} is ${size.toFixed(1)} px high`);
    if (!e.closest("table") || e.closest("pre")) continue;
    for (const match of node.data.matchAll(/[\p{L}\p{N}_]{2,}/gu)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const tops = [...range.getClientRects()].filter((r) => r.width > 0.5).map((r) => r.top);
      if (tops.length > 1 && Math.max(...tops) - Math.min(...tops) > 4)
        found.push(`the word "${match[0]}" of a table is broken in ${said(e)}`);
    }
  }
  return [...new Set(found)];
}
