// Where the nodes of a graph go: dagre for small drawings, a folded one for long graphs, whose backward half
// comes back under the forward half so that a saved value's edge stays short.

const NODE_HEIGHT = 44,
  CHIP_GAP = 4,
  MOST_LABEL = 22;
const textWidth = (text, size) => text.length * size * 0.6;
const chipWidth = (name) => Math.max(26, textWidth(shown(name, 14), 11.5) + 10);

/**
 * Nodes (ops with what they write, and start values) and hazards between them.
 * @param {Graph} graph
 */
function nodesAndEdges(graph) {
  const { writes, readers } = effects(graph);
  const nodes = new Map();
  const chips = (values) =>
    values.map((v) => ({ value: v, name: shown(graph.tensor_name[graph.value_tensor[v]], 14) }));
  const add = (key, fields, title) => {
    const width = fields.chips.reduce((sum, chip) => sum + chipWidth(chip.name) + CHIP_GAP, CHIP_GAP);
    nodes.set(key, {
      key,
      title,
      width: Math.max(width + 6, textWidth(title, 13.5) + 16),
      height: title ? NODE_HEIGHT : 26,
      ...fields,
    });
  };
  graph.op_name.forEach((name, o) => add(`o${o}`, { op: o, chips: chips(writes[o]) }, shown(name, MOST_LABEL)));
  const edges = new Map();
  const link = (kind, from, to, value) => {
    const key = `${kind}${from}>${to}`;
    if (!edges.has(key)) edges.set(key, { kind, from, to, values: [] });
    edges.get(key).values.push(value);
  };
  graph.value_tensor.forEach((_, v) => {
    const maker = graph.value_maker[v],
      destroyer = graph.value_destroyer[v],
      used = readers[v],
      gone = destroyer >= 0;
    if (maker < 0 && (used.length || gone)) add(`v${v}`, { op: null, chips: chips([v]) }, "");
    const source = maker < 0 ? `v${v}` : `o${maker}`;
    for (const o of used) link("raw", source, `o${o}`, v);
    if (!gone) return;
    for (const o of used) if (o !== destroyer) link("war", `o${o}`, `o${destroyer}`, v);
    if (maker >= 0) link("waw", source, `o${destroyer}`, v);
  });
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}

/** Longest paths from the start; edges go from lower to higher program order, so one pass is enough. */
function ranksOf(drawing) {
  const rank = new Map(drawing.nodes.map((node) => [node.key, 0]));
  const incoming = new Map();
  for (const edge of drawing.edges) {
    if (!incoming.has(edge.to)) incoming.set(edge.to, []);
    incoming.get(edge.to).push(edge.from);
  }
  const ops = drawing.nodes.filter((node) => node.op !== null).sort((a, b) => a.op - b.op);
  for (const node of ops) {
    for (const from of incoming.get(node.key) || [])
      rank.set(node.key, Math.max(rank.get(node.key), rank.get(from) + 1));
  }
  // A start value stands right before its first reader.
  const first = new Map();
  for (const edge of drawing.edges) {
    if (edge.from[0] === "v")
      first.set(edge.from, Math.min(first.has(edge.from) ? first.get(edge.from) : Infinity, rank.get(edge.to) - 1));
  }
  first.forEach((at, key) => rank.set(key, Math.max(0, at)));
  return rank;
}

/** Give every node x, y (its middle) and every edge its points. */
function layOut(drawing, aspect) {
  const rank = ranksOf(drawing);
  const span = drawing.edges.reduce((sum, edge) => sum + Math.max(1, rank.get(edge.to) - rank.get(edge.from)), 0);
  if (drawing.nodes.length <= 70 && span <= 420) {
    layOutSmall(drawing);
    // A long thin graph is read better in lines, like text.
    const { width, height } = boxOf(drawing);
    if (height > (2.5 * width) / aspect) layOutFolded(drawing, rank, aspect);
  } else layOutFolded(drawing, rank, aspect);
  drawing.box = boxOf(drawing);
  return drawing;
}

function boxOf(drawing) {
  const xs = drawing.nodes.flatMap((n) => [n.x - n.width / 2, n.x + n.width / 2]);
  const ys = drawing.nodes.flatMap((n) => [n.y - n.height / 2, n.y + n.height / 2]);
  return xs.length
    ? { x: d3.min(xs), y: d3.min(ys), width: d3.max(xs) - d3.min(xs), height: d3.max(ys) - d3.min(ys) }
    : { x: 0, y: 0, width: 1, height: 1 };
}

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
  drawing.curve = d3.curveBasis;
}

function layOutFolded(drawing, rank, aspect) {
  const deepest = d3.max(rank.values()) || 0,
    folds = deepest > 30;
  const column = (key) => (folds && rank.get(key) > deepest / 2 ? deepest - rank.get(key) : rank.get(key));
  const columns = new Map();
  for (const node of drawing.nodes) {
    const at = column(node.key),
      half = folds && rank.get(node.key) > deepest / 2 ? 1 : 0;
    if (!columns.has(at)) columns.set(at, [[], []]);
    columns.get(at)[half].push(node);
  }
  const near = new Map(drawing.nodes.map((node) => [node.key, []]));
  for (const edge of drawing.edges) {
    near.get(edge.from).push(edge.to);
    near.get(edge.to).push(edge.from);
  }
  const numbers = [...columns.keys()].sort((a, b) => a - b),
    slot = new Map();
  const renumber = (list) => list.forEach((node, i) => slot.set(node.key, i));
  numbers.forEach((c) => columns.get(c).forEach(renumber));
  for (let sweep = 0; sweep < 4; sweep++) {
    for (const c of sweep % 2 ? numbers.slice().reverse() : numbers) {
      for (const list of columns.get(c)) {
        const pull = new Map(list.map((node) => [node.key, d3.mean(near.get(node.key), (key) => slot.get(key)) ?? 0]));
        list.sort((a, b) => pull.get(a.key) - pull.get(b.key));
        renumber(list);
      }
    }
  }
  const widths = numbers.map((c) => d3.max(columns.get(c).flat(), (node) => node.width) + 34);
  const pitch = NODE_HEIGHT + 14,
    most = [0, 1].map((half) => d3.max(numbers, (c) => columns.get(c)[half].length));
  const bandHeight = (most[0] + most[1]) * pitch + 56,
    total = d3.sum(widths);
  const bands = Math.max(1, Math.round(Math.sqrt(total / (bandHeight * aspect)))),
    bandWidth = total / bands;
  let x = 0,
    band = 0;
  numbers.forEach((c, i) => {
    if (x + widths[i] / 2 > bandWidth && band < bands - 1) {
      x = 0;
      band++;
    }
    columns.get(c).forEach((list, half) =>
      list.forEach((node, k) => {
        node.x = x + widths[i] / 2;
        node.y = band * bandHeight + (half ? most[0] * pitch + k * pitch : (most[0] - list.length + k) * pitch);
        node.band = band;
      }),
    );
    x += widths[i];
  });
  const at = new Map(drawing.nodes.map((node) => [node.key, node]));
  drawing.edges.forEach((edge) => {
    const a = at.get(edge.from),
      b = at.get(edge.to);
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
  drawing.curve = d3.curveBasis;
}
