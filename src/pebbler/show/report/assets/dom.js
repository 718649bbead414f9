// Elements, numbers and colours. Text from the data goes in as text nodes only, never as markup.

/**
 * A new element: attributes, then children (elements, or strings that become text).
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  /** @type {[string, Plain | Styles | ((event: Event) => void)][]} */
  const given = Object.entries(attributes);
  for (const [key, value] of given) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key.slice(2), value);
    else if (typeof value === "object") Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

/**
 * The element of a kind that a selector finds; without it the page was put together wrongly.
 * @template {Element} T
 * @param {string} selector
 * @param {new () => T} kind
 * @param {ParentNode} [within]
 * @returns {T}
 */
function elementAt(selector, kind, within = document) {
  const node = within.querySelector(selector);
  if (node instanceof kind) return node;
  throw new Error(`the page has no ${kind.name} at ${selector}`);
}

/**
 * The element with an id, which the page has from the start.
 * @param {string} id
 */
const section = (id) => elementAt(`#${id}`, HTMLElement);

/**
 * A value that is there by the rules of who calls; `what` says in an error which one was missing.
 * @template T
 * @param {T | null | undefined} value
 * @param {string} what
 * @returns {T}
 */
function required(value, what) {
  if (value === null || value === undefined) throw new Error(`missing: ${what}`);
  return value;
}

/**
 * What a map has for a key, made and put in where it has nothing yet.
 * @template K, V
 * @param {{get: (key: K) => V | undefined, set: (key: K, value: V) => unknown}} map
 * @param {K} key
 * @param {() => V} make
 * @returns {V}
 */
function entryOf(map, key, make) {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}

/**
 * A name with everything made visible that would break a line, shortened to fit.
 * @param {string} name
 */
function shown(name, most = 200) {
  const plain = String(name).replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return plain.length > most ? `${plain.slice(0, most - 1)}…` : plain;
}

/**
 * Amounts of tensors or ops, tiles added up under what they are tiles of, in order of first appearance.
 * @param {string[]} origins
 * @param {number[]} amounts
 */
function byOrigin(origins, amounts) {
  /** @type {Map<string, Sum>} */
  const sums = new Map();
  origins.forEach((name, i) => {
    const sum = entryOf(sums, name, () => ({ name, amount: 0, count: 0 }));
    sum.amount += amounts[i];
    sum.count++;
  });
  return [...sums.values()];
}

/** @type {WeakMap<object, Map<string, unknown>>} */
const keptResults = new WeakMap();

/**
 * What `make` returns, made once for an object and a name.
 * @template T
 * @param {object} owner
 * @param {string} name
 * @param {() => T} make
 * @returns {T}
 */
function once(owner, name, make) {
  const results = entryOf(keptResults, owner, () => new Map());
  return /** @type {T} */ (entryOf(results, name, make)); // under one name an owner has results of one kind
}

/** @param {number} n */
const grouped = (n) => n.toLocaleString("en", { maximumFractionDigits: 2 });

/** @param {number | null} n */
const orDash = (n) => (n === null ? "–" : grouped(n));

/**
 * A number short enough for an axis or a label: 20,000 or 1.3M.
 * @param {number} n
 */
function brief(n) {
  const size = Math.abs(n);
  if (size >= 1e15) return n.toExponential(1);
  for (const [factor, letter] of /** @type {[number, string][]} */ ([
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
  ])) {
    if (size >= factor) return `${trim(n / factor)}${letter}`;
  }
  return size >= 1e4 ? `${trim(n / 1e3)}k` : grouped(n);
}
/** @param {number} n */
const trim = (n) => String(Number(n.toPrecision(3)));

/** @type {Record<string, [number, string][]>} */
const SCALES = {
  pJ: [
    [1e12, "J"],
    [1e9, "mJ"],
    [1e6, "µJ"],
    [1e3, "nJ"],
  ],
  ns: [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "µs"],
  ],
};

/**
 * What costs in a unit are: a time is no energy.
 * @param {string} unit
 */
const costWord = (unit) => (unit === "ns" ? "time" : "energy");
/** @param {string} word */
const capital = (word) => word[0].toUpperCase() + word.slice(1);

/**
 * The factor and name of the unit in which energies up to `most` read best.
 * @param {number} most
 * @param {string} unit
 */
function energyScale(most, unit) {
  const [factor, name] = (SCALES[unit] || []).find(([limit]) => Math.abs(most) >= limit) || [1, unit];
  return { factor, name };
}

/**
 * An energy with its unit: 10.764 µJ, 336 units.
 * @param {number} value
 * @param {string} unit
 */
function energyText(value, unit) {
  const { factor, name } = energyScale(value, unit);
  const scaled = value / factor;
  const text =
    factor === 1
      ? grouped(scaled)
      : scaled.toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
  return `${text} ${name === "units" && value === 1 ? "unit" : name}`;
}

/**
 * A change against a reference: "2.2 % less".
 * @param {number} value
 * @param {number} reference
 */
function changeText(value, reference) {
  if (!reference) return value === reference ? "the same" : "more than nothing";
  const part = value / reference - 1;
  if (Math.abs(part) < 5e-7) return "the same";
  if (value > 0 && reference / value >= 1.5) return `${(reference / value).toFixed(2)}x cheaper`;
  if (part > 0.5) return `${(value / reference).toFixed(2)}x more`;
  const percent = Math.abs(part * 100);
  return `${percent < 0.1 ? percent.toPrecision(2) : percent.toFixed(1)} % ${part < 0 ? "less" : "more"}`;
}

/**
 * The same with the word that follows it: "2.2 % less than", "the same as".
 * @param {number} value
 * @param {number} reference
 */
function comparedTo(value, reference) {
  const change = changeText(value, reference);
  return `${change} ${change === "the same" ? "as" : "than"}`;
}

/**
 * @param {number} n
 * @param {string} word
 */
const plural = (n, word) => `${grouped(n)} ${word}${n === 1 ? "" : "s"}`;

/** Levels from near to far in one scale that gets darker, so that any number of them has an order to the eye. */
const LEVEL_STOPS = ["#f6d57c", "#f2a154", "#ea6f5a", "#c9558f"];
/** @param {number} level */
const levelColour = (level) => `var(--level-${level})`;

/**
 * Give every level its colour; `count` is how many of them the page shows.
 * @param {number} count
 */
function useLevelColours(count) {
  const scale = d3.piecewise(d3.interpolateRgb, LEVEL_STOPS);
  for (let level = 0; level < Math.max(count, 32); level++)
    document.documentElement.style.setProperty(
      `--level-${level}`,
      required(d3.color(scale(Math.min(1, level / Math.max(1, count - 1)))), "the colour of a level").formatHex(),
    );
}

/**
 * The levels that a plan pays for or holds something in.
 * @param {PlanData} plan
 */
const usedLevels = (plan) =>
  once(plan, "levels", () => {
    const { levels, peak } = plan.judgement,
      all = plan.machine.level.map((_, i) => i),
      used = all.filter((i) => levels[i] > 0 || peak[i] > 0);
    return used.length ? used : all;
  });
/**
 * A line of a legend: a square in some colour, and words.
 * @param {string} colour
 * @param {string} words
 */
const swatch = (colour, words) => el("span", {}, el("span", { class: "swatch", style: { background: colour } }), words);
const PLAN_COLOURS = ["#0072b2", "#d55e00", "#8a6fb0", "#7a7f86", "#4b8a3f", "#b0517c"];
const PLAN_DARK = ["#56b4e9", "#e8793a", "#b39ddb", "#a8adb4", "#8bc97f", "#e29ab9"];
const PLAN_DASHES = ["", "7 4", "2 3", "9 3 2 3", "4 2", "1 4"];

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}
/** @param {number} i */
const planColour = (i) => (isDark() ? PLAN_DARK : PLAN_COLOURS)[i % 6];
/** @param {string} name */
const cssValue = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * A button with a sign or a word, and what it does in words.
 * @param {string} text
 * @param {string} label
 * @param {() => void} act
 */
const labelled = (text, label, act) =>
  el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);

/**
 * Take a section that would say nothing off the page, and its link among the views.
 * @param {string} id
 */
function leaveOut(id) {
  for (const part of [`section[aria-labelledby=${id}]`, `nav.contents a[href='#${id}']`])
    elementAt(part, HTMLElement).hidden = true;
}

/**
 * A table of text; columns that are numbers align right.
 * @param {string} caption
 * @param {string[]} columns
 * @param {Cell[][]} rows
 */
function tableOf(caption, columns, rows) {
  const numeric = columns.map(
    (_, i) => rows.length > 0 && rows.every((cells) => /^[-+<]?[\d.,]/.test(String(cells[i])) || cells[i] === "–"),
  );
  /** @type {(tag: "td" | "th", text: Cell, i: number) => HTMLElement} */
  const cell = (tag, text, i) =>
    el(tag, { class: numeric[i] ? "n" : null, scope: tag === "th" ? "col" : null }, String(text));
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      {},
      caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, ...columns.map((text, i) => cell("th", text, i)))),
      el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((text, i) => cell("td", text, i))))),
    ),
  );
}

/**
 * The figures behind a chart, for readers who cannot see it and for spreadsheets: `figure` makes a table of them.
 * @param {string[]} columns
 * @param {() => Cell[][]} rows
 * @returns {Figures}
 */
const asTable = (columns, rows) => ({ columns, rows });

/**
 * A table of figures, made when opened.
 * @param {Figures} figures
 */
function foldedTable({ columns, rows: makeRows }) {
  const details = el("details", {}, el("summary", {}, "Show as a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const rows = makeRows();
    details.append(
      tableOf(
        rows.length > 400 ? `The first 400 of ${grouped(rows.length)} rows; the CSV file has all` : "",
        columns,
        rows.slice(0, 400),
      ),
    );
  });
  return details;
}

/**
 * Draw a view again whenever the width of its holder or the theme changes.
 * @param {{ holder: HTMLElement, width: number, draw: () => void }} view
 */
function redrawn(view) {
  new ResizeObserver(() => {
    if (Math.floor(view.holder.clientWidth) !== view.width) view.draw();
  }).observe(view.holder);
  document.addEventListener("themechange", () => view.draw());
}

/**
 * A figure whose drawing follows the width of the page: `draw(width)` returns an element; with its files to save.
 * @param {string} label
 * @param {(width: number) => Element} draw
 * @param {string | null} [caption]
 * @param {Figures} [table]
 */
function figure(label, draw, caption, table) {
  const holder = el("div", { class: "chart", role: "img", "aria-label": label });
  let width = 0;
  /** @param {boolean} force */
  const redraw = (force) => {
    const now = Math.floor(holder.clientWidth);
    if (now < 50 || (!force && now === width)) return;
    width = now;
    holder.replaceChildren(draw(width));
  };
  new ResizeObserver(() => redraw(false)).observe(holder);
  document.addEventListener("themechange", () => redraw(true));
  return el(
    "figure",
    {},
    holder,
    caption ? el("figcaption", {}, caption) : null,
    filesOf(label, () => elementAt("svg", SVGSVGElement, holder), table),
  );
}

/**
 * Below a chart: its figures as a table, and buttons that save it.
 * @param {string} label
 * @param {() => SVGSVGElement} svg
 * @param {Figures} [table]
 */
const filesOf = (label, svg, table) =>
  el(
    "div",
    { class: "files" },
    table ? foldedTable(table) : null,
    el("span", {}, svgButton(label, svg), table ? csvButton(label, table.columns, table.rows) : null),
  );
