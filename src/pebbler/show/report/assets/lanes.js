// Ops in lanes: one per family of tiles, or all in one where there are too many; where each op stands in its lane.

const MOST_LANES = 64;

/**
 * The lanes of a graph: {lanes: [{name, axes, tiles (per axis), count}], laneOf, tileOf, placeOf} with one entry per op in the
 * last three: its lane, its tile numbers, and its place among all tiles of the lane, the first axis counting most.
 * @param {Graph} graph
 */
const lanesOf = (graph) => once(graph, "lanes", () => makeLanes(graph));

/**
 * @param {Graph} graph
 * @returns {Lanes}
 */
function makeLanes(graph) {
  const laneOf = new Int32Array(graph.op_name.length),
    placeOf = new Int32Array(graph.op_name.length);
  /** @type {Map<string, number>} */
  const numbers = new Map();
  /** @type {Lane[]} */
  const lanes = [];
  graph.op_origin.forEach((name, o) => {
    const pairs = graph.op_tile[o];
    laneOf[o] = entryOf(numbers, name, () => {
      const axes = pairs.filter((_, i) => i % 2 === 0).map((axis) => graph.axes[axis]);
      return lanes.push({ name, axes, tiles: [], ops: [], count: 0 }) - 1;
    });
    const lane = lanes[laneOf[o]];
    lane.ops.push(o);
    for (let i = 1; i < pairs.length; i += 2)
      lane.tiles[(i - 1) / 2] = Math.max(lane.tiles[(i - 1) / 2] || 0, pairs[i] + 1);
  });
  for (const lane of lanes) {
    const whole = lane.tiles.reduce((product, count) => product * count, 1);
    // Ops that share a name for their origin without being tiles stand beside each other.
    const apart = lane.ops.length > whole;
    lane.ops.forEach((o, i) => {
      placeOf[o] = apart ? i : lane.tiles.reduce((place, count, k) => place * count + graph.op_tile[o][2 * k + 1], 0);
    });
    lane.count = apart ? lane.ops.length : whole;
    if (apart || !lane.tiles.length) lane.tiles = [lane.count];
  }
  if (lanes.length > MOST_LANES && graph.axes.length === 0) {
    const all = graph.op_name.map((_, o) => o);
    laneOf.fill(0);
    all.forEach((o) => {
      placeOf[o] = o;
    });
    lanes.splice(0, lanes.length, {
      name: "",
      axes: [],
      tiles: [all.length],
      ops: all,
      count: all.length,
      single: true,
    });
  }
  return { lanes, laneOf, placeOf };
}

/**
 * Whether ops are tiles of others, so that a grid of them says more than a graph.
 * @param {Graph} graph
 */
const isTiled = (graph) => graph.axes.length > 0 && lanesOf(graph).lanes.some((lane) => lane.count > 1);

/**
 * The level that most of a move's reading is paid in (units where reads are free); -1 where nothing is read.
 * @param {Timeline} timeline
 * @param {number} i
 */
function servingLevel(timeline, i) {
  const { arena, judgement } = timeline,
    levels = arena.names.length;
  let best = -1,
    most = [0, 0];
  for (let k = 0; k < levels; k++) {
    const units = judgement.served[i * levels + k] || 0,
      paid = units * arena.read[k];
    if (units > 0 && (paid > most[0] || (paid === most[0] && units > most[1]))) [best, most] = [k, [paid, units]];
  }
  return best;
}

/**
 * Per move: what `servingLevel` says, and whether its op had run before; made once per timeline.
 * @param {Timeline} timeline
 */
const servedMoves = (timeline) => once(timeline, "served moves", () => makeServedMoves(timeline));

/** @param {Timeline} timeline */
function makeServedMoves(timeline) {
  const { moves, length, graph } = timeline,
    level = new Int8Array(length),
    again = new Uint8Array(length),
    ran = new Uint8Array(graph.op_name.length);
  for (let i = 0; i < length; i++) {
    level[i] = servingLevel(timeline, i);
    if (moves.kind[i] !== COMPUTE) continue;
    again[i] = ran[moves.subject[i]];
    ran[moves.subject[i]] = 1;
  }
  return { level, again };
}

/**
 * What a move reads from where, in words: "20,000 from L2, 20 from L1".
 * @param {Timeline} timeline
 * @param {number} i
 */
function servedWords(timeline, i) {
  const { arena, judgement, graph } = timeline,
    levels = arena.names.length,
    parts = arena.names
      .map((name, k) => ({ name, units: judgement.served[i * levels + k] || 0 }))
      .filter(({ units }) => units > 0)
      .map(({ name, units }) => `${grouped(units)} from ${shown(name, 24)}`);
  return parts.length ? `reads ${parts.join(", ")} (${graph.unit})` : "reads nothing";
}
