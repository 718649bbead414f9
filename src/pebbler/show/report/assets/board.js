// The board of a game played by hand: values as nodes, pebbles on them, arrows from what is read to what is made.

const CELL = 76, // between two nodes
  NODE = 22; // half a node's width

/**
 * Columns and rows of the values: by longest path; a deep graph comes back under itself, as backward under forward.
 * @param {Graph} graph
 * @param {number} width
 */
function placeNodes(graph, width) {
  const { reads } = effects(graph);
  const rank = graph.value_maker.map(() => 0);
  graph.op_name.forEach((_, o) => {
    const deepest = reads[o].reduce((most, v) => Math.max(most, rank[v] + 1), 0);
    for (const v of effects(graph).writes[o]) rank[v] = deepest;
  });
  const last = Math.max(...rank),
    folds = last > 6;
  /** @type {BoardNode[]} */
  const nodes = rank.map((r, value) => ({ value, column: folds && r > last / 2 ? last - r : r, x: 0, y: 0, band: 0 }));
  // What starts stands right before its first reader.
  const { readers } = effects(graph);
  nodes.forEach((node) => {
    if (graph.value_maker[node.value] >= 0) return;
    const next = readers[node.value].flatMap((o) => effects(graph).writes[o]).map((v) => nodes[v].column);
    if (next.length) node.column = Math.max(0, Math.min(...next) - 1);
  });
  /** @type {BoardNode[][]} */
  const columns = [];
  for (const node of nodes) (columns[node.column] = columns[node.column] || []).push(node);
  const filled = columns.filter((list) => list);
  const rows = Math.max(...filled.map((list) => list.length));
  arrangeRows(graph, nodes, filled);
  const perBand = Math.max(2, Math.floor((width - 20) / CELL));
  const upright = filled.length > perBand && rows <= perBand && !folds; // a narrow page reads from top to bottom
  filled.forEach((list, c) =>
    list.forEach((node, k) => {
      const aside = (rows - list.length) / 2 + k;
      if (upright) Object.assign(node, { x: (aside + 0.5) * CELL, y: (c + 0.5) * CELL, band: 0 });
      else {
        const band = Math.floor(c / perBand);
        const down = folds ? k : aside;
        Object.assign(node, { x: ((c % perBand) + 0.5) * CELL, y: (down + 0.5) * CELL + band * (rows * CELL + 18), band });
      }
    }),
  );
  return nodes;
}

/**
 * Within a column, nodes stand near what they read: a few sweeps over the columns.
 * @param {Graph} graph
 * @param {BoardNode[]} nodes
 * @param {BoardNode[][]} columns
 */
function arrangeRows(graph, nodes, columns) {
  const { reads, writes } = effects(graph);
  const near = emptyLists(nodes.length);
  graph.op_name.forEach((_, o) => {
    for (const from of reads[o])
      for (const to of writes[o]) {
        near[from].push(to);
        near[to].push(from);
      }
  });
  const place = nodes.map(() => 0);
  /** @param {BoardNode[]} list */
  const number = (list) => list.forEach((node, i) => (place[node.value] = i - list.length / 2));
  columns.forEach(number);
  const crossings = () => {
    const lines = nodes.flatMap((node, from) => near[from].filter((to) => nodes[to].column > node.column).map((to) => [from, to]));
    let count = 0;
    for (const [a, b] of lines)
      for (const [c, d] of lines)
        if (nodes[a].column === nodes[c].column && nodes[b].column === nodes[d].column)
          count += place[a] < place[c] && place[b] > place[d] ? 1 : 0;
    return count;
  };
  // Program order is what people expect, so it changes only for far fewer crossings.
  for (let sweep = 0, before = nodes.length > 60 ? 0 : crossings(); sweep < 4 && before > 0; sweep++) {
    for (const list of sweep % 2 ? columns.slice().reverse() : columns) {
      /** @param {BoardNode} node */
      const pull = (node) => {
        const others = near[node.value].filter((v) => nodes[v].column !== node.column);
        return others.length ? others.reduce((sum, v) => sum + place[v], 0) / others.length : place[node.value];
      };
      const given = list.slice(),
        pulled = given.map((node) => ({ node, by: pull(node) }));
      pulled.sort((a, b) => a.by - b.by || place[a.node.value] - place[b.node.value]);
      list.splice(0, list.length, ...pulled.map(({ node }) => node));
      number(list);
      const after = crossings();
      if (after > 0.6 * before) {
        list.splice(0, list.length, ...given);
        number(list);
      } else before = after;
    }
  }
}

/**
 * A new SVG element.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, Plain>} [attributes]
 * @param {...Node} children
 * @returns {SVGElementTagNameMap[T]}
 */
function svgEl(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, String(value));
  }
  node.append(...children);
  return node;
}

/**
 * A node's name: the tensor's, with the version where there are several; a step that leaves nothing is named by its op.
 * @param {Graph} graph
 * @param {number} value
 */
function nodeNameOf(graph, value) {
  const tensor = graph.value_tensor[value],
    versions = graph.value_tensor.filter((t) => t === tensor).length;
  if (!graph.value_size[value] && graph.value_maker[value] >= 0) return graph.op_name[graph.value_maker[value]];
  return `${graph.tensor_name[tensor]}${versions > 1 ? `·${graph.value_version[value]}` : ""}`;
}

class Board {
  /**
   * @param {(value: number) => void} act  is called when a node is clicked or entered
   * @param {(value: number) => void} choose  is called when it gets the focus
   */
  constructor(act, choose) {
    this.act = act;
    this.choose = choose;
    /** @type {HandGame | null} */
    this.game = null;
    /** @type {DrawnBoard | null} */
    this.drawn = null;
    /** @type {number | null} */
    this.chosen = null;
    this.width = 0;
    this.element = el("div", { class: "board", role: "group", "aria-label": "The board" });
    new ResizeObserver(() => this.fit()).observe(this.element);
  }

  /** @param {HandGame} game */
  load(game) {
    this.game = game;
    this.chosen = null;
    this.width = 0;
    this.drawn = null;
    this.element.replaceChildren();
    this.fit();
  }

  fit() {
    const width = Math.floor(this.element.clientWidth);
    if (!this.game || width < 50 || width === this.width) return;
    this.width = width;
    this.draw(this.game.graph);
    this.show();
  }

  /** @param {Graph} graph */
  draw(graph) {
    const nodes = placeNodes(graph, this.width);
    const right = Math.max(...nodes.map((node) => node.x)) + CELL / 2,
      below = Math.max(...nodes.map((node) => node.y)) + CELL / 2;
    const scale = Math.max(1, Math.min(1.6, (this.width - 24) / right, ((window.innerWidth < 640 ? 0.42 : 0.55) * window.innerHeight) / below));
    const svg = svgEl("svg", { viewBox: `0 0 ${right} ${below}`, width: right * scale, height: below * scale });
    svg.append(
      svgEl("defs", {}, svgEl("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" }, svgEl("path", { d: "M0,0L8,4L0,8z", class: "tip" }))),
    ); // prettier-ignore
    /** @type {DrawnBoard["edges"]} */
    const edges = [];
    const { reads, writes } = effects(graph);
    graph.op_name.forEach((_, o) => {
      for (const from of new Set(reads[o]))
        for (const to of writes[o]) {
          const path = svgEl("path", { d: this.curve(nodes[from], nodes[to]), class: "arrow", "marker-end": "url(#tip)" });
          edges.push({ to, path });
          svg.append(path);
        }
    });
    const shapes = nodes.map((node) => this.drawNode(node, graph));
    svg.append(...shapes.map((shape) => shape.group));
    this.element.replaceChildren(svg);
    this.drawn = { nodes, shapes, edges };
  }

  /**
   * An arrow from the edge of one node to the edge of another, bent where it would run through others.
   * @param {BoardNode} a
   * @param {BoardNode} b
   */
  curve(a, b) {
    const dx = b.x - a.x,
      dy = b.y - a.y,
      far = Math.hypot(dx, dy) || 1;
    const gap = NODE + 3,
      straight = far < 1.6 * CELL;
    if (a.band !== b.band) {
      // From one line of the board to another: it leaves at the end of the one and comes in at the start of the other.
      const way = a.band < b.band ? 1 : -1;
      return `M${a.x + way * gap},${a.y}h${way * 12}M${b.x - way * (gap + 12)},${b.y}h${way * 12}`;
    }
    const bend = straight ? 0 : 0.22 * far;
    const mx = (a.x + b.x) / 2 - (dy / far) * bend,
      my = (a.y + b.y) / 2 + (dx / far) * bend;
    const from = Math.hypot(mx - a.x, my - a.y) || 1,
      to = Math.hypot(b.x - mx, b.y - my) || 1;
    const start = [a.x + ((mx - a.x) / from) * gap, a.y + ((my - a.y) / from) * gap],
      end = [b.x - ((b.x - mx) / to) * gap, b.y - ((b.y - my) / to) * gap];
    return `M${start}Q${mx},${my} ${end}`;
  }

  /**
   * @param {BoardNode} node
   * @param {Graph} graph
   */
  drawNode(node, graph) {
    const { value } = node;
    const size = graph.value_size[value],
      group = svgEl("g", { class: "place", transform: `translate(${node.x},${node.y})`, role: "button", tabindex: -1, "data-value": value }); // prettier-ignore
    const outline = size
      ? svgEl("circle", { r: NODE, class: "outline" })
      : svgEl("rect", { x: -NODE, y: -15, width: 2 * NODE, height: 30, rx: 8, class: "outline" });
    const red = svgEl("circle", { r: size ? 18 : 6, cy: size ? 0 : -15, cx: size ? 0 : NODE, class: "red" });
    const blue = svgEl("rect", { x: 8, y: 7, width: 17, height: 17, rx: 3, class: "blue" });
    const label = svgEl("text", { class: "name", dy: 4.5 });
    const full = nodeNameOf(graph, value),
      short = shown(full, 7);
    label.textContent = short;
    if (short.length > 3) label.setAttribute("style", "font-size:11px");
    const words = svgEl("title");
    group.append(words, outline, red, blue, label);
    if (size > 1) {
      const units = svgEl("text", { class: "size", dy: NODE + 13 });
      units.textContent = brief(size);
      group.append(units);
    }
    group.addEventListener("click", () => {
      this.focus(value);
      this.act(value);
    });
    group.addEventListener("focus", () => this.select(value));
    return { group, words };
  }

  /** @param {number} value */
  select(value) {
    this.chosen = value;
    this.show();
    this.choose(value);
  }

  /** @param {number} value */
  focus(value) {
    this.drawn?.shapes[value].group.focus({ preventScroll: false });
    if (this.chosen !== value) this.select(value);
  }

  /**
   * Bring a node into sight where the board scrolls; the page stays where it is.
   * @param {number} value
   */
  follow(value) {
    const node = this.drawn?.shapes[value];
    if (!node) return;
    const box = node.group.getBoundingClientRect(),
      view = this.element.getBoundingClientRect();
    if (box.top < view.top || box.bottom > view.bottom)
      this.element.scrollTop += (box.top + box.bottom - view.top - view.bottom) / 2;
    if (box.left < view.left || box.right > view.right)
      this.element.scrollLeft += (box.left + box.right - view.left - view.right) / 2;
  }

  /**
   * Draw the pebbles; `hinted` is the value that the hint is about.
   * @param {number | null} [hinted]
   */
  show(hinted = null) {
    if (!this.drawn || !this.game) return;
    const { graph, present, ran } = this.game,
      { reads } = effects(graph);
    this.drawn.shapes.forEach(({ group, words }, v) => {
      const maker = graph.value_maker[v],
        done = maker < 0 || ran[maker] === 1,
        ready = maker >= 0 && !(present[v] & 1) && reads[maker].every((r) => present[r] & 1);
      const state = { red: present[v] & 1, blue: present[v] & 2, done, ready, chosen: v === this.chosen, hinted: v === hinted, goal: graph.value_survives[v] }; // prettier-ignore
      group.setAttribute("class", ["place", ...Object.entries(state).flatMap(([name, on]) => (on ? [name] : []))].join(" "));
      group.setAttribute("tabindex", v === (this.chosen === null ? 0 : this.chosen) ? "0" : "-1");
      const where = [present[v] & 1 ? "red pebble" : "", present[v] & 2 ? "blue pebble" : ""].filter(Boolean);
      const held = where.length ? where.join(" and ") : done ? "no pebble now" : "not computed yet";
      const text = `${shown(nodeNameOf(graph, v), 60)}: ${held}${ready ? ", can be computed" : ""}`;
      group.setAttribute("aria-label", text);
      words.textContent = text;
    });
    this.drawn.edges.forEach(({ to, path }) => path.classList.toggle("lit", to === this.chosen));
  }

  /**
   * The node that lies next in a direction, or the same.
   * @param {number} value
   * @param {number} dx
   * @param {number} dy
   */
  neighbour(value, dx, dy) {
    const { nodes } = required(this.drawn, "the board"),
      from = nodes[value];
    let best = value,
      least = Infinity;
    for (const node of nodes) {
      const x = node.x - from.x,
        y = node.y - from.y,
        along = x * dx + y * dy,
        aside = Math.abs(x * dy) + Math.abs(y * dx);
      if (node.value === value || along <= 1) continue;
      const far = along + 2.5 * aside;
      if (far < least) [best, least] = [node.value, far];
    }
    return best;
  }

  /** @param {number} value */
  shake(value) {
    if (!this.drawn) return;
    const { group } = this.drawn.shapes[value];
    group.classList.remove("refused");
    void group.getBoundingClientRect(); // so that the animation starts anew
    group.classList.add("refused");
  }
}
