// Where the nodes of a graph go: dagre for small drawings, a folded one for long graphs, whose backward half
// comes back under the forward half so that a saved value's edge stays short.

const NODE_HEIGHT = 44,
  CHIP_GAP = 4,
  MOST_LABEL = 22;
/** @type {(text: string, size: number) => number} */
const textWidth = (text, size) => text.length * size * 0.6;
/** @param {string} name */
const chipWidth = (name) => Math.max(26, textWidth(shown(name, 14), 11.5) + 10);

/**
 * Nodes (ops with what they write, and start values) and hazards between them.
 * @param {Graph} graph
 * @returns {Drawing}
 */
function nodesAndEdges(graph) {
  const { writes, readers } = effects(graph);
  /** @type {GraphNode[]} */
  const nodes = [];
  /** @type {(key: string, op: number | null, values: number[], title: string) => void} */
  const add = (key, op, values, title) => {
    const chips = values.map((v) => ({ value: v, name: shown(graph.tensor_name[graph.value_tensor[v]], 14) })),
      least = chips.reduce((sum, chip) => sum + chipWidth(chip.name) + CHIP_GAP, CHIP_GAP),
      width = Math.max(least + 6, textWidth(title, 13.5) + 16);
    nodes.push({ key, op, title, chips, x: 0, y: 0, width, height: title ? NODE_HEIGHT : 26, band: 0 });
  };
  graph.op_name.forEach((name, o) => add(`o${o}`, o, writes[o], shown(name, MOST_LABEL)));
  /** @type {Map<string, GraphEdge>} */
  const edges = new Map();
  /** @type {(kind: GraphEdge["kind"], from: string, to: string, value: number) => void} */
  const link = (kind, from, to, value) => {
    const edge = entryOf(edges, `${kind}${from}>${to}`, () => ({ kind, from, to, values: [], points: [] }));
    edge.values.push(value);
  };
  graph.value_tensor.forEach((_, v) => {
    const maker = graph.value_maker[v],
      destroyer = graph.value_destroyer[v],
      used = readers[v],
      gone = destroyer >= 0;
    if (maker < 0 && (used.length || gone)) add(`v${v}`, null, [v], "");
    const source = maker < 0 ? `v${v}` : `o${maker}`;
    for (const o of used) link("raw", source, `o${o}`, v);
    if (!gone) return;
    for (const o of used) if (o !== destroyer) link("war", `o${o}`, `o${destroyer}`, v);
    if (maker >= 0) link("waw", source, `o${destroyer}`, v);
  });
  return { nodes, edges: [...edges.values()] };
}

/**
 * Longest paths from the start, by the key of a node; edges go from lower to higher program order, so one pass is enough.
 * @param {Drawing} drawing
 */
function ranksOf(drawing) {
  /** @type {Map<string, number>} */
  const ranks = new Map();
  /** @param {string} key */
  const rank = (key) => ranks.get(key) ?? 0;
  /** @type {Map<string, string[]>} */
  const incoming = new Map();
  for (const edge of drawing.edges) entryOf(incoming, edge.to, () => []).push(edge.from);
  // Ops are listed in program order, before the start values.
  for (const { key, op } of drawing.nodes)
    if (op !== null) for (const from of incoming.get(key) || []) ranks.set(key, Math.max(rank(key), rank(from) + 1));
  // A start value stands right before its first reader.
  /** @type {Map<string, number>} */
  const first = new Map();
  for (const edge of drawing.edges) {
    if (edge.from[0] === "v") first.set(edge.from, Math.min(first.get(edge.from) ?? Infinity, rank(edge.to) - 1));
  }
  first.forEach((at, key) => ranks.set(key, Math.max(0, at)));
  return rank;
}

/**
 * Give every node x, y (its middle) and every edge its points; returns the box around them.
 * @param {Drawing} drawing
 * @param {number} aspect
 */
function layOut(drawing, aspect) {
  const rank = ranksOf(drawing);
  const span = drawing.edges.reduce((sum, edge) => sum + Math.max(1, rank(edge.to) - rank(edge.from)), 0);
  if (drawing.nodes.length <= 70 && span <= 420) {
    layOutSmall(drawing);
    // A long thin graph is read better in lines, like text.
    const { width, height } = boxOf(drawing);
    if (height > (2.5 * width) / aspect) layOutFolded(drawing, rank, aspect);
  } else layOutFolded(drawing, rank, aspect);
  return boxOf(drawing);
}

/**
 * @param {Drawing} drawing
 * @returns {Box}
 */
function boxOf({ nodes }) {
  if (!nodes.length) return { x: 0, y: 0, width: 1, height: 1 };
  const x = d3.min(nodes, (n) => n.x - n.width / 2) ?? 0,
    y = d3.min(nodes, (n) => n.y - n.height / 2) ?? 0,
    right = d3.max(nodes, (n) => n.x + n.width / 2) ?? 0,
    bottom = d3.max(nodes, (n) => n.y + n.height / 2) ?? 0;
  return { x, y, width: right - x, height: bottom - y };
}

/** @param {Drawing} drawing */
function layOutSmall(drawing) {
  const g = new dagre.graphlib.Graph({ multigraph: true });
  g.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 12, edgesep: 8 });
  drawing.nodes.forEach((node) => g.setNode(node.key, { width: node.width, height: node.height }));
  drawing.edges.forEach((edge) => g.setEdge(edge.from, edge.to, { weight: edge.kind === "raw" ? 2 : 1 }, edge.kind));
  dagre.layout(g);
  drawing.nodes.forEach((node) => Object.assign(node, { x: g.node(node.key).x, y: g.node(node.key).y }));
  drawing.edges.forEach((edge) => {
    edge.points = g.edge(edge.from, edge.to, edge.kind).points.map((p) => [p.x, p.y]);
  });
}

/**
 * @param {Drawing} drawing
 * @param {(key: string) => number} rank
 * @param {number} aspect
 */
function layOutFolded(drawing, rank, aspect) {
  const deepest = d3.max(drawing.nodes, (node) => rank(node.key)) || 0,
    folds = deepest > 30;
  /** @type {Map<number, [GraphNode[], GraphNode[]]>} */
  const found = new Map();
  for (const node of drawing.nodes) {
    const depth = rank(node.key),
      half = folds && depth > deepest / 2 ? 1 : 0;
    /** @type {() => [GraphNode[], GraphNode[]]} */
    const empty = () => [[], []];
    entryOf(found, half ? deepest - depth : depth, empty)[half].push(node);
  }
  const columns = [...found].sort((a, b) => a[0] - b[0]).map(([, halves]) => halves);
  const at = new Map(drawing.nodes.map((node) => [node.key, node])),
    ends = drawing.edges.map((edge) => ({
      edge,
      a: required(at.get(edge.from), "the node that an edge comes from"),
      b: required(at.get(edge.to), "the node that an edge goes to"),
    }));
  /** @type {Map<GraphNode, GraphNode[]>} */
  const near = new Map();
  for (const { a, b } of ends) {
    entryOf(near, a, () => []).push(b);
    entryOf(near, b, () => []).push(a);
  }
  /** @type {Map<GraphNode, number>} */
  const slot = new Map();
  /** @param {GraphNode[]} list */
  const renumber = (list) => list.forEach((node, i) => slot.set(node, i));
  columns.forEach((halves) => halves.forEach(renumber));
  for (let sweep = 0; sweep < 4; sweep++) {
    for (const halves of sweep % 2 ? columns.slice().reverse() : columns) {
      for (const list of halves) {
        const pulled = list.map((node) => ({ node, pull: d3.mean(near.get(node) || [], (other) => slot.get(other)) ?? 0 }));
        list.splice(0, list.length, ...pulled.sort((a, b) => a.pull - b.pull).map(({ node }) => node));
        renumber(list);
      }
    }
  }
  const widths = columns.map((halves) => (d3.max(halves.flat(), (node) => node.width) ?? 0) + 34);
  const pitch = NODE_HEIGHT + 14,
    most = [0, 1].map((half) => d3.max(columns, (halves) => halves[half].length) ?? 0);
  const bandHeight = (most[0] + most[1]) * pitch + 56,
    total = d3.sum(widths);
  const bands = Math.max(1, Math.round(Math.sqrt(total / (bandHeight * aspect)))),
    bandWidth = total / bands;
  let x = 0,
    band = 0;
  columns.forEach((halves, i) => {
    if (x + widths[i] / 2 > bandWidth && band < bands - 1) {
      x = 0;
      band++;
    }
    halves.forEach((list, half) =>
      list.forEach((node, k) => {
        node.x = x + widths[i] / 2;
        node.y = band * bandHeight + (half ? most[0] * pitch + k * pitch : (most[0] - list.length + k) * pitch);
        node.band = band;
      }),
    );
    x += widths[i];
  });
  ends.forEach(({ edge, a, b }) => {
    if (a.band !== b.band) {
      const [from, to] =
        a.band < b.band ? [a.y + a.height / 2, b.y - b.height / 2] : [a.y - a.height / 2, b.y + b.height / 2];
      const middle = a.band < b.band ? to - 20 : to + 20;
      edge.points = [
        [a.x, from],
        [a.x, middle],
        [b.x, middle],
        [b.x, to],
      ];
      return;
    }
    const straight = Math.abs(a.x - b.x) < 1;
    const [ax, bx] = straight
      ? [a.x, b.x]
      : a.x < b.x
        ? [a.x + a.width / 2, b.x - b.width / 2]
        : [a.x - a.width / 2, b.x + b.width / 2];
    const [ay, by] = straight
      ? a.y < b.y
        ? [a.y + a.height / 2, b.y - b.height / 2]
        : [a.y - a.height / 2, b.y + b.height / 2]
      : [a.y, b.y];
    edge.points = [
      [ax, ay],
      [ax + (bx - ax) / 3, ay],
      [bx - (bx - ax) / 3, by],
      [bx, by],
    ];
  });
}
