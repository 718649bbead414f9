// Files that the page gives: charts as SVG, their figures as CSV, plans as JSON.

/**
 * Hand a text to the browser as a file.
 * @param {string} name
 * @param {string} type
 * @param {string} text
 */
function saveText(name, type, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * A file's name from the words of a label.
 * @param {string} label
 * @param {string} ending
 */
const fileName = (label, ending) =>
  `${
    label
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "-")
      .replace(/^-|-$/g, "")
      .slice(0, 60) || "chart"
  }.${ending}`;

const DRAWN = [
  "fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "stroke-opacity", "font-size", "font-weight",
  "font-family", "text-anchor", "display", "paint-order",
]; // prettier-ignore

/**
 * An SVG element as a file of its own: what the page's styles say of it stands in it.
 * @param {SVGSVGElement} svg
 */
function svgText(svg) {
  const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true)),
    from = [svg, ...svg.querySelectorAll("*")],
    to = [copy, ...copy.querySelectorAll("*")];
  to.forEach((node, i) => {
    if (!svg.isConnected || !(node instanceof SVGElement) || node.tagName === "style") return;
    const style = getComputedStyle(from[i]);
    for (const name of DRAWN) {
      const value = style.getPropertyValue(name);
      if (value) node.style.setProperty(name, value);
    }
    node.removeAttribute("class");
  });
  copy.querySelectorAll("style").forEach((node) => node.remove());
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  if (svg.isConnected) {
    const box = svg.getBoundingClientRect();
    if (!copy.getAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    copy.setAttribute("width", String(box.width));
    copy.setAttribute("height", String(box.height));
    copy.style.background = cssValue("--paper");
  }
  return new XMLSerializer().serializeToString(copy).replace(/var\((--[\w-]+)\)/g, (_, name) => cssValue(name));
}

/**
 * Rows as CSV: numbers without separators; text that a spreadsheet would take for a formula is marked as text.
 * @param {string[]} columns
 * @param {Cell[][]} rows
 */
function csvText(columns, rows) {
  /** @param {Cell} value */
  const cell = (value) => {
    const text = String(value);
    if (/^[-+]?\d{1,3}(,\d{3})*(\.\d+)?$/.test(text)) return text.replaceAll(",", "").replace(/^\+/, "");
    if (/^[-+]?\d+(\.\d+)?(e[-+]?\d+)?$/i.test(text)) return text;
    const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** @type {(text: string, title: string, act: () => void) => HTMLButtonElement} */
const saveButton = (text, title, act) => el("button", { type: "button", class: "save", title, onclick: act }, text);

/**
 * A button that saves what `make` returns, an SVG element.
 * @param {string} label
 * @param {() => SVGSVGElement} make
 */
const svgButton = (label, make) =>
  saveButton("SVG", `Save ${label} as SVG`, () => saveText(fileName(label, "svg"), "image/svg+xml", svgText(make())));

/**
 * A button that saves a table.
 * @param {string} label
 * @param {string[]} columns
 * @param {() => Cell[][]} makeRows
 */
const csvButton = (label, columns, makeRows) =>
  saveButton("CSV", `Save the figures of ${label} as CSV`, () =>
    saveText(fileName(label, "csv"), "text/csv", csvText(columns, makeRows())),
  );
