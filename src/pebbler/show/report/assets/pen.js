// Drawing on canvas, and the same drawing as SVG for whoever wants to keep it; the read-out that follows the pointer.

const FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif";

/**
 * A canvas of some size in CSS pixels, sharp on any screen, with its pen.
 * @param {number} width
 * @param {number} height
 */
function canvasOf(width, height) {
  const canvas = el("canvas", {}),
    ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const pen = required(canvas.getContext("2d"), "a canvas to draw on");
  pen.scale(ratio, ratio);
  return { canvas, pen };
}

/** What a drawing uses of a canvas, written down as SVG: rectangles, lines and text. */
class SvgPen {
  /**
   * @param {number} width
   * @param {number} height
   */
  constructor(width, height) {
    this.size = [width, height];
    /** @type {SVGElement[]} */
    this.parts = [];
    this.globalAlpha = 1;
    this.fillStyle = this.strokeStyle = "#000";
    this.lineWidth = 1;
    /** @type {CanvasTextAlign} */
    this.textAlign = "start";
    this.font = `12px ${FONT}`;
    /** @type {number[]} */
    this.dash = [];
    /** @type {string[]} */
    this.path = [];
    this.ruler = canvasOf(1, 1).pen;
  }

  /**
   * @param {keyof SVGElementTagNameMap} tag
   * @param {Record<string, string | number>} attributes
   */
  add(tag, attributes, text = "") {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes))
      node.setAttribute(name, typeof value === "number" ? String(Number(value.toFixed(2))) : value);
    if (this.globalAlpha < 1) node.setAttribute("opacity", String(Number(this.globalAlpha.toFixed(3))));
    node.textContent = text;
    this.parts.push(node);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  fillRect(x, y, width, height) {
    this.add("rect", { x, y, width, height, fill: this.fillStyle });
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  strokeRect(x, y, width, height) {
    this.add("rect", { x, y, width, height, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth });
  }

  /**
   * @param {string} text
   * @param {number} x
   * @param {number} y
   */
  fillText(text, x, y) {
    const [, weight, size] = /^(\d{3} |bold )?([\d.]+px)/.exec(this.font) || ["", "", "12px"],
      anchor = { start: "start", left: "start", center: "middle", right: "end", end: "end" }[this.textAlign];
    this.add(
      "text",
      { x, y, fill: this.fillStyle, "font-size": size, "font-weight": (weight || "400").trim(), "text-anchor": anchor },
      text,
    );
  }

  /** @param {string} text */
  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  /** @param {number[]} dash */
  setLineDash(dash) {
    this.dash = dash;
  }

  beginPath() {
    this.path = [];
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  moveTo(x, y) {
    this.path.push(`M${x.toFixed(2)},${y.toFixed(2)}`);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  lineTo(x, y) {
    this.path.push(`L${x.toFixed(2)},${y.toFixed(2)}`);
  }

  stroke() {
    /** @type {Record<string, string>} */
    const dash = this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {};
    this.add("path", {
      d: this.path.join(""),
      fill: "none",
      stroke: this.strokeStyle,
      "stroke-width": this.lineWidth,
      ...dash,
    });
  }

  /** The drawing as an element. */
  node() {
    const [width, height] = this.size,
      svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [name, value] of Object.entries({
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      "font-family": FONT,
    }))
      svg.setAttribute(name, String(value));
    svg.append(...this.parts);
    return svg;
  }
}

/**
 * A horizontal or vertical line.
 * @param {Pen} pen
 * @param {number} x1
 * @param {number} y1
 * @param {number} x2
 * @param {number} y2
 */
function rule(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

/**
 * Text shortened with an ellipsis until it is at most `width` wide.
 * @param {Pen} pen
 * @param {string} text
 * @param {number} width
 */
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let low = 0,
    high = text.length;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (pen.measureText(`${text.slice(0, mid)}…`).width <= width) low = mid;
    else high = mid - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}

/** @type {Record<string, -1 | 1>} */
const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };

/** The read-out beside the pointer; one for the page. */
const readout = {
  /** @type {HTMLElement | null} */
  box: null,

  /**
   * @param {MouseEvent} event
   * @param {...(Node | string)} content
   */
  show(event, ...content) {
    const box = this.box || el("div", { class: "tooltip", role: "status" });
    if (!this.box) document.body.append(box);
    this.box = box;
    box.hidden = false;
    box.replaceChildren(...content);
    const wide = box.offsetWidth,
      over = event.pageX + wide + 24 > document.documentElement.clientWidth + window.scrollX;
    Object.assign(box.style, {
      left: `${over ? Math.max(4, event.pageX - wide - 12) : event.pageX + 14}px`,
      top: `${event.pageY + 14}px`,
    });
  },

  hide() {
    if (this.box) this.box.hidden = true;
  },
};

/**
 * Lines of a read-out: the first one strong, empty ones left out.
 * @param {string} first
 * @param {...(string | null)} lines
 */
const readoutLines = (first, ...lines) => [
  el("strong", {}, first),
  ...lines.flatMap((line) => (line ? [el("br"), line] : [])),
];
