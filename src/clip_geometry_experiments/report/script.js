// What a report does beyond showing itself: links open what they lead into, figures enlarge, the tables of all numbers
// are sorted and filtered. Without it everything is still there.
"use strict";
const made = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// a link into closed details opens them
const reveal = (hash) => {
  const target = hash.length > 1 ? document.getElementById(decodeURIComponent(hash.slice(1))) : null;
  for (let up = target?.closest("details"); up; up = up.parentElement.closest("details")) up.open = true;
  return target;
};
document.addEventListener("click", (event) => reveal(event.target.closest?.('a[href^="#"]')?.hash ?? ""));
reveal(location.hash)?.scrollIntoView();

// the contents bar marks where the reader is
const links = new Map(
  [...document.querySelectorAll(".contents a")].map((link) => [document.getElementById(link.hash.slice(1)), link]),
);
const mark = new IntersectionObserver((entries) => {
  const here = entries.filter((entry) => entry.isIntersecting).map((entry) => links.get(entry.target))[0];
  if (!here) return;
  for (const link of links.values()) link.removeAttribute("aria-current");
  here.setAttribute("aria-current", "true");
  here.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
}, { rootMargin: "-10% 0px -75% 0px" });
for (const place of links.keys()) if (place) mark.observe(place);

// figures enlarge on click; Escape, or another click, closes
const large = made("img", { alt: "" });
const zoom = made("dialog", { id: "zoom" },
  made("form", { method: "dialog" }, made("button", { textContent: "Close" })),
  made("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Enlarged figure" }));
zoom.addEventListener("click", (event) => event.target.closest("form") || zoom.close());
document.body.append(zoom);
for (const image of document.querySelectorAll(".card img")) {
  const button = made("button", { type: "button", className: "enlarge", ariaLabel: `Enlarge: ${image.alt}` });
  image.replaceWith(button);
  button.append(image);
  button.addEventListener("click", () => {
    const fitting = Math.min(0.94 * innerWidth, 0.84 * innerHeight * (image.naturalWidth / image.naturalHeight));
    large.src = image.src;
    large.alt = image.alt;
    // what would hardly grow on this screen scrolls
    const width = fitting > 1.25 * image.clientWidth ? fitting : 1.6 * image.clientWidth;
    large.style.width = `${Math.round(width)}px`;
    zoom.lastChild.replaceChildren(large);
    zoom.ariaLabel = image.alt;
    zoom.showModal();
  });
}

// a table of all numbers: sorted by a column, or filtered, it has a line for each number with all of its cells
const DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const read = (text) => {
  const [, digits, power] = text.replaceAll("−", "-").match(/^(-?[\d.]+)[^×]*(?:× 10(\S+))?/) ?? [];
  const plain = power?.replace("⁻", "-").replace(/[⁰-⁹¹²³]/g, (digit) => DIGITS.indexOf(digit));
  return digits === undefined ? null : Number(`${digits}e${plain ?? 0}`);
};
for (const table of document.querySelectorAll("table.measures")) {
  const original = [...table.tBodies];
  const lines = [];
  for (const body of original) {
    let shared = [];
    for (const row of body.querySelectorAll("tr:not(.group)")) {
      const line = row.cloneNode(true);
      if (row.matches(".first")) shared = [...line.cells].filter((cell) => cell.matches(".shared"));
      else line.prepend(...shared.map((cell) => cell.cloneNode(true)));
      line.querySelectorAll("details").forEach((caveat) => row.matches(".first") || caveat.remove());
      line.querySelectorAll("[rowspan]").forEach((cell) => cell.removeAttribute("rowspan"));
      line.className = "first";
      lines.push({ line, words: `${body.rows[0].textContent} ${line.textContent}`.toLowerCase() });
    }
  }
  const search = made("input", { type: "search" });
  const count = made("output");
  const flat = made("tbody", { hidden: true });
  table.append(flat);
  let column = null, falling = false;
  const key = ({ line }) => {
    const text = line.cells[column]?.textContent.trim() ?? "";
    return { number: read(text), text };
  };
  const compare = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x.number !== null && y.number !== null) return (x.number - y.number) * (falling ? -1 : 1);
    if ((x.number === null) !== (y.number === null)) return x.number === null ? 1 : -1; // what is missing comes last
    return x.text.localeCompare(y.text) * (falling ? -1 : 1);
  };
  const show = () => {
    const wanted = search.value.toLowerCase().split(/\s+/);
    const found = lines.filter(({ words }) => wanted.every((word) => words.includes(word)));
    flat.hidden = column === null && !search.value.trim();
    for (const body of original) body.hidden = !flat.hidden;
    flat.replaceChildren(...(column === null ? found : found.toSorted(compare)).map(({ line }) => line));
    table.parentElement.scrollTop = 0;
    count.textContent = flat.hidden ? `${lines.length} lines` : `${found.length} of ${lines.length} lines`;
  };
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = made("button", { type: "button", title: "Sort by this column" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => { // rising, falling, as it was
      [column, falling] = column !== place ? [place, false] : falling ? [null, false] : [place, true];
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      if (column !== null) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      show();
    });
  });
  search.addEventListener("input", show);
  table.parentElement.before(made("p", { className: "tools" }, made("label", {}, "Filter ", search), " ", count));
  show();
}
