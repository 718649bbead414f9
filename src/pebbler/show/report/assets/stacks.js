// What a level holds, in the order in which memory over time stacks it up: by kind, then by age.

/** @type {[kind: string, words: string][]} */
const KINDS = [
  ["param", "params"],
  ["input", "inputs"],
  ["temp", "temps"],
  ["again", "temps computed again"],
  ["away", "temps sent to a slower level"],
  ["output", "outputs"],
  ["left", "left over: nothing needs it now"],
];

/**
 * Per value the number of its kind in KINDS: the tensor's, or what this plan does to it.
 * @param {Timeline} timeline
 */
const kindsOf = (timeline) => once(timeline, "kinds", () => makeKinds(timeline));

/** @param {Timeline} timeline */
function makeKinds(timeline) {
  const { graph, moves } = timeline,
    number = (/** @type {string} */ kind) => KINDS.findIndex(([name]) => name === kind),
    [temp, again, sent] = ["temp", "again", "away"].map(number),
    kinds = graph.value_tensor.map((t) => {
      const found = number(graph.tensor_kind[t]);
      return found < 0 ? temp : found;
    }),
    makes = timeline.makes();
  const away = new Set();
  moves.kind.forEach((kind, i) => {
    if (kind === COPY && moves.to[i] > moves.level[i]) away.add(moves.subject[i]);
  });
  kinds.forEach((kind, v) => {
    if (kind !== temp) return;
    if (makes[v].length > 1) kinds[v] = again;
    else if (away.has(graph.value_tensor[v])) kinds[v] = sent;
  });
  return kinds;
}

/**
 * Values in the order in which they are stacked: by kind, then by the move that first makes them.
 * @param {Timeline} timeline
 */
const stackRanks = (timeline) => once(timeline, "stack ranks", () => makeStackRanks(timeline));

/** @param {Timeline} timeline */
function makeStackRanks(timeline) {
  const kinds = kindsOf(timeline),
    makes = timeline.makes(),
    order = kinds
      .map((_, v) => v)
      .sort((a, b) => kinds[a] - kinds[b] || (makes[a][0] || 0) - (makes[b][0] || 0) || a - b);
  const ranks = new Int32Array(kinds.length);
  order.forEach((v, rank) => {
    ranks[v] = rank;
  });
  return ranks;
}

/**
 * What a level holds, from the bottom up: [value, units], what nothing needs on top.
 * @param {Timeline} timeline
 * @param {Held[]} held
 */
function stacked(timeline, held) {
  const ranks = stackRanks(timeline);
  return held.sort((a, b) => (a[0] < 0 ? 1 : b[0] < 0 ? -1 : ranks[a[0]] - ranks[b[0]]));
}

/**
 * Units held by each level after every number of legal moves: levels x (moves + 1).
 * @param {Timeline} timeline
 */
const roomOverTime = (timeline) => once(timeline, "room", () => makeRoomOverTime(timeline));

/** @param {Timeline} timeline */
function makeRoomOverTime(timeline) {
  const { arena, judgement } = timeline,
    count = judgement.legal ? timeline.length : Math.min(timeline.length, judgement.played),
    rooms = arena.names.map(() => new Float64Array(count + 1));
  if (arena.management === "explicit")
    play(timeline.graph, arena, timeline.moves, (i, _, used) => {
      used.forEach((units, k) => {
        if (i + 1 <= count) rooms[k][i + 1] = units;
      });
    });
  return rooms; // a cache is as full as it gets: any move of a column will do
}
