"use strict";
(async () => {
  const $ = (id) => document.getElementById(id);
  const meta = JSON.parse($("meta").textContent);
  const {modalities, states, planes, width, n} = meta;
  const NOTHING = 0xffffffff;
  const dark = matchMedia("(prefers-color-scheme: dark)"), still = matchMedia("(prefers-reduced-motion: reduce)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colorOf = (m) => dark.matches ? modalities[m].dark : modalities[m].color;
  const modalityOf = (p) => { let m = 0; while (p >= modalities[m].start + modalities[m].size) m++; return m; };
  const now = {state: 0, plane: "pca", color: "modality", hidden: new Set(), point: null, list: "mixed"};

  // --- data of the file, unpacked at first use

  const cache = new Map();
  const cached = (name, make) => cache.has(name) ? cache.get(name) : cache.set(name, make()).get(name);
  const loaded = new Promise((done) => document.readyState === "loading"
    ? document.addEventListener("DOMContentLoaded", done, {once: true}) : done());
  const bytes = async (name) => {
    if (!$(name)) await loaded;
    const text = $(name).textContent;
    let packed;
    if (Uint8Array.fromBase64) packed = Uint8Array.fromBase64(text);
    else {
      const raw = atob(text);
      packed = new Uint8Array(raw.length);
      for (let k = 0; k < raw.length; k++) packed[k] = raw.charCodeAt(k);
    }
    $(name).textContent = "";
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  };
  const numbers = (name, Kind) => cached(name, async () => new Kind(await bytes(name)));
  const strings = (name) => cached(name, async () => JSON.parse(new TextDecoder().decode(await bytes(name))));

  // coordinates are 16-bit steps between two bounds: the x of all points, then their y
  const coordinates = (state, plane) => {
    const own = states[state].plane, source = planes[own][plane] ? own : 0, bounds = planes[source][plane];
    return cached(`points ${plane} ${source}`, async () => {
      const steps = await numbers(`${plane}-${source}`, Uint16Array), xy = [new Float32Array(n), new Float32Array(n)];
      for (const a of [0, 1]) {
        const [low, high] = bounds[a], step = (high - low) / 65535;
        for (let k = 0; k < n; k++) xy[a][k] = low + step * steps[a * n + k];
      }
      return {xy, bounds, source};
    });
  };

  // thumbnails lie one after the other; each becomes a blob when it is first shown
  const thumbnail = async (p) => {
    if (!meta.thumbnails) return null;
    const [where, offsets, all] = await Promise.all([
      cached("place of thumbnails", async () => new Map([...await numbers("thumb-points", Uint32Array)].map((q, k) => [q, k]))),
      numbers("thumb-offsets", Uint32Array), numbers("thumbs", Uint8Array)]);
    if (!where.has(p)) return null;
    const k = where.get(p);
    return cached(`thumbnail ${p}`, () =>
      URL.createObjectURL(new Blob([all.subarray(offsets[k], offsets[k + 1])], {type: "image/webp"})));
  };
  const textsOf = async (p) => {
    const [ids, texts] = await Promise.all([strings("ids"), strings("texts")]);
    const label = await labelOf(p);
    return {id: ids[p], label, text: texts[p] || (label && !/^\d+$/.test(label) ? label : "")};
  };
  const labelOf = async (p) => {
    if (!meta.label) return "";
    return meta.label.names[(await numbers("label", Uint16Array))[p]] || "";
  };

  // --- elements

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
      if (name in element && name !== "list") element[name] = value;
      else element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };
  const mark = (m) => {
    const element = make("span", {className: `mark ${modalities[m].symbol}`, title: modalities[m].name});
    element.style.setProperty("--mark", colorOf(m));
    return element;
  };
  const imageOf = async (p) => {
    const source = await thumbnail(p);
    return source && make("img", {src: source, alt: ""});
  };

  const share = (value) => `${(100 * value).toFixed(!value || value >= 0.0995 ? 0 : value < 0.001 ? 2 : 1)}%`;
  const written = ({kind}, value) => kind === "share" ? share(value) : value.toFixed(3);

  // --- the plot

  const size = n <= 2500 ? 7 : n <= 12000 ? 5 : 3, opacity = n <= 2500 ? 0.75 : n <= 12000 ? 0.6 : 0.45;
  const plot = $("plot"), rings = modalities.length + 1, chosen = modalities.length + 2;
  const part = (array, m) => array.subarray(modalities[m].start, modalities[m].start + modalities[m].size);
  const fitting = ({bounds}) => bounds.map(([low, high]) => {
    const room = 0.06 * (high - low || 1);
    return [low - room, high + room];
  });
  const axis = (title, range) => ({
    title: {text: title, standoff: 6, font: {size: 12.5, color: css("--soft")}}, range: [...range], showticklabels: false,
    ticks: "", zeroline: false, gridcolor: css("--line"), automargin: false});
  const titles = (current) => now.plane === "umap" ? ["UMAP 1", "UMAP 2"]
    : [0, 1].map((a) => `PC ${a + 1}: ${share(planes[current.source].shares[a])} of the variance`);
  const layout = (current) => {
    const [x, y] = fitting(current), [a, b] = titles(current);
    return {
      margin: {l: 34, r: 8, t: 8, b: 34}, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      hovermode: "closest", hoverdistance: 12, dragmode: "pan", font: {family: css("--sans"), color: css("--ink")},
      xaxis: axis(a, x), yaxis: {...axis(b, y), scaleanchor: "x"}};
  };

  const coloring = async () => {
    if (now.color === "modality") return modalities.map((_, m) => ({color: colorOf(m), opacity}));
    const {names, shown} = meta.label, codes = await numbers("label", Uint16Array);
    const place = new Float32Array(names.length + 1);  // 0 is gray
    shown.forEach((code, k) => { place[code] = k + 1; });
    const colors = [css("--faint"), ...meta.palette.slice(0, shown.length)];
    const scale = colors.flatMap((color, k) => [[k / colors.length, color], [(k + 1) / colors.length, color]]);
    return modalities.map((_, m) => ({
      color: Float32Array.from(part(codes, m), (code) => place[code]), cmin: -0.5, cmax: colors.length - 0.5, opacity,
      colorscale: scale, showscale: false}));
  };

  let current = await coordinates(0, "pca");
  const colors = await coloring();
  await Plotly.newPlot(plot, [
    ...modalities.map(({symbol, name}, m) => ({
      type: "scattergl", mode: "markers", name, x: part(current.xy[0], m), y: part(current.xy[1], m), hoverinfo: "none",
      marker: {size: symbol === "circle" ? size : size + 1, symbol, ...colors[m]}})),
    {type: "scattergl", mode: "lines", x: [], y: [], hoverinfo: "skip", line: {width: 1, color: css("--soft")}},
    {type: "scattergl", mode: "markers", x: [], y: [], hoverinfo: "skip",
      marker: {size: size + 8, symbol: "circle-open", color: css("--ink"), line: {width: 1.5}}},
    {type: "scattergl", mode: "markers", x: [], y: [], hoverinfo: "skip",
      marker: {size: size + 12, symbol: "circle-open", color: css("--ink"), line: {width: 3}}}],
    layout(current), {displayModeBar: false, responsive: true, scrollZoom: true, doubleClick: false});
  performance.mark("drawn");
  document.documentElement.dataset.drawn = "";

  const several = modalities.map((_, m) => m);
  let latestMove = 0;  // a newer move ends an older one
  const move = async () => {
    const mine = ++latestMove, next = await coordinates(now.state, now.plane);
    if (mine !== latestMove) return;
    const before = current, same = before.xy === next.xy;
    current = next;
    if (!same) {
      const frames = n > 12000 || still.matches ? 1 : 14, [[x0, x1], [y0, y1]] = fitting(next);
      const ranges = [plot.layout.xaxis.range, plot.layout.yaxis.range].map((each) => [...each]);
      for (let f = 1; f <= frames; f++) {
        const t = f / frames, s = t * t * (3 - 2 * t);
        const xy = f === frames ? next.xy
          : [0, 1].map((a) => before.xy[a].map((value, k) => value + s * (next.xy[a][k] - value)));
        const between = (range, [low, high]) => range.map((value, k) => value + s * ([low, high][k] - value));
        const [a, b] = titles(next);
        await Plotly.update(plot, {x: several.map((m) => part(xy[0], m)), y: several.map((m) => part(xy[1], m))},
          {"xaxis.range": between(ranges[0], [x0, x1]), "yaxis.range": between(ranges[1], [y0, y1]),
            "xaxis.title.text": a, "yaxis.title.text": b}, several);
        if (frames > 1) await new Promise(requestAnimationFrame);
        if (mine !== latestMove) { current = {...next, xy}; return; }
      }
    }
    await lines();
  };
  const paint = async () => {
    const colors = await coloring();
    await Plotly.restyle(plot, Object.fromEntries(["color", "cmin", "cmax", "colorscale", "opacity"].map(
      (key) => [`marker.${key}`, several.map((m) => colors[m][key] === undefined ? null : colors[m][key])])), several);
  };
  const lines = async () => {
    const ends = now.point === null ? [] : (await lists(now.point, now.state)).map(([p]) => p);
    const [x, y] = current.xy, p = now.point;
    await Plotly.restyle(plot, {
      x: [ends.flatMap((q) => [x[p], x[q], null]), ends.map((q) => x[q]), p === null ? [] : [x[p]]],
      y: [ends.flatMap((q) => [y[p], y[q], null]), ends.map((q) => y[q]), p === null ? [] : [y[p]]],
    }, [rings - 1, rings, chosen]);
  };

  // --- numbers of the repair

  document.querySelectorAll(".ticks span").forEach((e, k, all) => { e.style.left = `${100 * k / Math.max(all.length - 1, 1)}%`; });

  const showNumbers = () => {
    const state = states[now.state], none = states[0];
    $("name").textContent = state.name;
    $("summary").textContent = state.summary;
    $("slider").value = now.state;
    $("slider").setAttribute("aria-valuetext", state.name);
    document.querySelectorAll(".ticks span").forEach((e, k) => e.classList.toggle("now", k === now.state));
    $("numbers").replaceChildren(...meta.numbers.filter(({key}) => key in none.numbers).map((each) => {
      const {key, title} = each, chance = meta.chances[key];
      const was = now.state ? make("span", {className: "was"}, `${written(each, none.numbers[key])} → `) : null;
      return make("div", {}, make("dt", {}, title), make("dd", {}, was, written(each, state.numbers[key]),
        make("small", {}, chance === undefined ? "\u00a0" : `by chance ${written(each, chance)}`)));
    }));
    $("still").hidden = !now.state || state.plane !== 0;
    $("still").textContent = `The points do not move: ${state.name} changes how pairs of rows are scored, which a plane of the rows cannot show. Click a point to see its neighbors before and after.`;
    $("reading").textContent = now.plane === "umap"
      ? "UMAP keeps neighbors, not distances: gaps and sizes of clusters say nothing."
      : "Principal components of all modalities together. The plane does not show what they leave out.";
  };

  const legend = () => {
    const toggle = (m) => {
      if (now.hidden.has(m)) now.hidden.delete(m);
      else now.hidden.add(m);
      Plotly.restyle(plot, {visible: !now.hidden.has(m)}, [m]);
      legend();
    };
    const items = modalities.map(({plural}, m) => make("button", {
      type: "button", "aria-pressed": String(!now.hidden.has(m)), title: `show or hide ${plural}`, onclick: () => toggle(m)},
    now.color === "modality" ? mark(m) : null, plural));
    if (now.color === "label") {
      const {names, shown, sizes} = meta.label;
      for (const [k, code] of shown.entries()) {
        const dot = make("span", {className: "mark"});
        dot.style.setProperty("--mark", meta.palette[k]);
        items.push(make("span", {}, dot, ` ${names[code]} (${sizes[k].toLocaleString("en")})`));
      }
      if (names.length > shown.length) items.push(make("span", {}, `${names.length - shown.length} more in gray`));
    }
    $("legend").replaceChildren(...items.map((each) => make("li", {}, each)));
  };

  // --- the neighbors of a point

  const places = () => cached("places", async () => new Map([...await numbers("queries", Uint32Array)].map((p, k) => [p, k])));
  const lists = async (p, state) => {
    const [where, near, scores] = await Promise.all(
      [places(), numbers(`near-${state}`, Uint32Array), numbers(`scores-${state}`, Uint16Array)]);
    const row = where.get(p), [low, high] = states[state].scores, own = modalityOf(p), neighbors = [];
    for (let k = row * width; k < (row + 1) * width && neighbors.length < meta.k; k++) {
      const q = near[k];
      if (q === NOTHING) break;
      if (now.list !== "mixed" && (now.list === "own") !== (modalityOf(q) === own)) continue;
      neighbors.push([q, low + (high - low) * scores[k] / 65535]);
    }
    return neighbors;
  };

  const column = async (p, state, keys, title) => {
    const rows = await lists(p, state), own = modalityOf(p);
    const isPair = (q) => keys[p] >= 0 && keys[q] === keys[p] && modalityOf(q) !== own;
    const items = await Promise.all(rows.map(async ([q, score], k) => {
      const [{id, text}, image] = await Promise.all([textsOf(q), imageOf(q)]), pair = isPair(q);
      const name = pair ? make("strong", {}, meta.keyed_by === "pairs" ? "its own pair" : "same label") : null;
      return make("li", {className: pair ? "pair" : ""}, make("button", {type: "button", onclick: () => select(q), title: id},
        make("span", {className: "rank"}, String(k + 1)),
        make("span", {className: "of"}, mark(modalityOf(q)), image),
        make("span", {}, make("span", {className: "said"}, text || id), name, name ? " " : null,
          make("span", {className: "score"}, score.toFixed(Math.abs(score) < 10 ? 3 : 1).replace("-", "\u2212")))));
    }));
    const others = rows.filter(([q]) => modalityOf(q) !== own).length, other = modalities.length === 2 ? modalities[1 - own].plural : "of another modality";
    const facts = now.list === "mixed" && modalities.length > 1 ? `: ${others} of ${rows.length} are ${other}` : "";
    const missed = now.list !== "own" && meta.keyed_by === "pairs" && keys[p] >= 0 && !rows.some(([q]) => isPair(q));
    return make("section", {"data-state": states[state].name}, make("h3", {}, title + facts),
      make("p", {}, `by the ${states[state].plane || !state ? "cosine" : "score"}${missed ? "; its own pair is not among them" : ""}`),
      make("ol", {}, ...items));
  };

  let latestDescription = 0;
  const describe = async () => {
    const p = now.point;
    if (p === null) return;
    const mine = ++latestDescription, m = modalityOf(p);
    const [{id, text, label}, image, keys, counts, held] = await Promise.all([
      textsOf(p), imageOf(p), numbers("keys", Int32Array), numbers(`counts-${now.state}`, Uint16Array), numbers("held", Uint8Array)]);
    const pick = make("fieldset", {}, make("legend", {}, "Neighbors in"), ...(modalities.length > 1 ? [["mixed", "the mixed index"],
      ["own", "its modality"], ["across", "the others"]] : [["mixed", "the index"]]).map(([value, title]) => make("label", {},
      make("input", {type: "radio", name: "list", value, checked: now.list === value,
        onchange: () => { now.list = value; describe(); lines(); }}), title)));
    const before = await column(p, 0, keys, now.state ? "Before" : "Without a repair");
    const after = now.state ? await column(p, now.state, keys, `After ${states[now.state].name}`) : null;
    if (mine !== latestDescription) return;
    const focused = document.activeElement, inside = $("panel").contains(focused), again = inside && focused.name === "list";
    $("panel").replaceChildren(
      make("div", {className: "chosen"}, image, make("div", {}, make("p", {className: "what"}, mark(m), " ", text || id),
        make("p", {}, [modalities[m].name, text ? id : null, label ? `label ${label}` : null].filter(Boolean).join(" · ")),
        make("p", {}, `Among the first ${meta.k} of ${counts[p].toLocaleString("en")} lists${now.state ? ` after ${states[now.state].name}` : ""}. ${held[p]
          ? "No repair was fitted on it." : "Repairs were fitted on it."}`),
        now.instead ? make("p", {}, "This is the nearest point on the plane whose neighbors were computed.") : null)),
      pick, make("div", {className: after ? "lists" : "lists one"}, before, after, now.state || states.length < 2 ? null
        : make("p", {}, "Move the slider to see its neighbors after a repair.")));
    if (inside) (again ? $("panel").querySelector(`input[value="${now.list}"]`) : $("panel")).focus({preventScroll: true});
  };
  const select = async (p) => {
    const where = await places();
    now.instead = !where.has(p);
    if (now.instead) {  // select the nearest point whose neighbors were computed
      const [x, y] = current.xy, own = modalityOf(p);
      let least = Infinity, best = null;
      for (const q of where.keys()) {
        const d = (x[q] - x[p]) ** 2 + (y[q] - y[p]) ** 2;
        if (d < least && modalityOf(q) === own) [least, best] = [d, q];
      }
      p = best ?? [...where.keys()][0];
    }
    now.point = p;
    await Promise.all([describe(), lines()]);
  };

  // --- controls

  const go = async (state) => {
    now.state = state;
    showNumbers();
    await Promise.all([move(), describe()]);
  };
  $("slider").addEventListener("input", (event) => go(Number(event.target.value)));
  $("planes").append(...[["pca", "PCA"], ["umap", "UMAP"]].filter(([value]) => planes[0][value]).map(([value, title]) =>
    make("label", {}, make("input", {type: "radio", name: "plane", value, checked: value === "pca",
      onchange: () => { now.plane = value; showNumbers(); move(); }}), title)));
  $("color-label").hidden = !meta.label;
  $("color").addEventListener("change", (event) => {
    now.color = event.target.value;
    paint();
    legend();
  });
  $("reset").addEventListener("click", () => {
    const [x, y] = fitting(current);
    Plotly.relayout(plot, {"xaxis.range": x, "yaxis.range": y});
  });
  $("any").addEventListener("click", async () => {
    const queries = [...(await places()).keys()];
    select(queries[Math.floor(Math.random() * queries.length)]);
  });
  let latestSearch = 0;
  $("search").addEventListener("input", async (event) => {
    const mine = ++latestSearch, words = event.target.value.trim().toLowerCase();
    if (!words) { $("results").hidden = true; return; }
    const [ids, texts] = await Promise.all([strings("ids"), strings("texts")]), matches = [];
    for (let p = 0; p < n && matches.length < 8; p++)
      if ((texts[p] || "").toLowerCase().includes(words) || ids[p].toLowerCase().includes(words)) matches.push(p);
    if (mine !== latestSearch) return;
    $("results").hidden = false;
    $("results").replaceChildren(...(matches.length ? matches.map((p) => make("li", {}, make("button", {type: "button",
      onclick: () => { $("results").hidden = true; select(p); }}, mark(modalityOf(p)), ` ${texts[p] || ids[p]}`)))
      : [make("li", {}, "nothing found")]));
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") $("results").hidden = true; });
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) $("results").hidden = true; });

  const pointOf = ({curveNumber, pointNumber}) => curveNumber < modalities.length ? modalities[curveNumber].start + pointNumber : null;
  plot.on("plotly_click", ({points}) => { const p = pointOf(points[0]); if (p !== null) select(p); });
  let hovered = null;
  plot.on("plotly_hover", async ({points, event}) => {
    const p = hovered = pointOf(points[0]);
    if (p === null) return;
    const [{id, text}, image] = await Promise.all([textsOf(p), imageOf(p)]);
    if (hovered !== p) return;
    const tip = $("tip"), box = plot.getBoundingClientRect();
    tip.replaceChildren(...[image, make("div", {}, mark(modalityOf(p)), " ", text || id)].filter(Boolean));
    tip.hidden = false;
    const x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = `${Math.max(4, Math.min(x + 14, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, y + 14 + tip.offsetHeight > box.height ? y - tip.offsetHeight - 10 : y + 14)}px`;
  });
  plot.on("plotly_unhover", () => { hovered = null; $("tip").hidden = true; });
  dark.addEventListener("change", async () => {
    const ranges = [plot.layout.xaxis.range, plot.layout.yaxis.range].map((each) => [...each]), fresh = layout(current);
    [fresh.xaxis.range, fresh.yaxis.range] = ranges;
    await Plotly.relayout(plot, fresh);
    await Plotly.restyle(plot, {"marker.color": css("--ink")}, [rings, chosen]);
    await Plotly.restyle(plot, {"line.color": css("--soft")}, [rings - 1]);
    await paint();
    legend();
    describe();
  });
  showNumbers();
  legend();
  window.explorer = {now, select, go, lists};  // for tests and for the console
})();
