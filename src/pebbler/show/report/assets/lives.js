// When values are in memory: from which move to which, in which level or at which address.

/**
 * When and where values are in memory, in moves done.
 * @param {Timeline} timeline
 * @returns {Life[]}
 */
function livesOf(timeline) {
  return timeline.arena.management === "explicit" ? explicitLives(timeline) : cacheLives(timeline);
}

/**
 * The same where the plan decides: from the move that brings a value into a level to the one that takes it out.
 * @param {Timeline} timeline
 */
const explicitLives = (timeline) => once(timeline, "lives", () => makeExplicitLives(timeline));

/** @param {Timeline} timeline */
function makeExplicitLives(timeline) {
  const { graph, arena } = timeline,
    before = new Int32Array(graph.value_tensor.length);
  /** @type {(Life & {level: number})[]} */
  const lives = [];
  /** @type {Map<number, number>} */
  const open = new Map(); // since when, by value and level
  let end = 0;
  play(graph, arena, timeline.moves, (i, present) => {
    end = i + 1;
    for (const v of touchedBy(graph, timeline.moves, i)) {
      const changed = before[v] ^ present[v];
      before[v] = present[v];
      for (let level = 0; level < arena.names.length; level++) {
        if (!((changed >>> level) & 1)) continue;
        const key = v * 32 + level,
          from = open.get(key);
        if (from === undefined) open.set(key, end);
        else {
          lives.push({ value: v, level, from, to: end });
          open.delete(key);
        }
      }
    }
  });
  open.forEach((from, key) => lives.push({ value: Math.floor(key / 32), level: key % 32, from, to: end + 0.5 }));
  return lives;
}

/**
 * The same on a cache, which has no say in it: from each making of a value to its last use before it is made again.
 * @param {Timeline} timeline
 */
function cacheLives(timeline) {
  const { graph, arena } = timeline,
    { destroys } = effects(graph),
    end = timeline.length + 0.5;
  /** @type {Life[]} */
  const lives = [];
  /** @type {Map<number, number>} */
  const gone = new Map(); // the move that overwrites each value
  /** @type {Map<string, number>} */
  const address = new Map(); // of each value, and of what each move makes
  timeline.moves.kind.forEach((kind, i) => {
    if (kind === COMPUTE) destroys[timeline.moves.subject[i]].forEach((v) => gone.set(v, i)); // the new version takes over its room
  });
  const computes = timeline.moves.kind.flatMap((kind, i) => (kind === COMPUTE ? [i] : []));
  const order = computes.map((i) => timeline.moves.subject[i]);
  for (const touch of touchesOf(graph, arena, order)) {
    const low = touch.address * arena.line;
    entryOf(address, `${touch.value}`, () => low);
    if (touch.write) address.set(`${touch.value} ${computes[touch.step] + 1}`, low);
  }
  const anew = arena.management !== "recency";
  graph.value_tensor.forEach((_, v) => {
    if (!address.has(`${v}`)) return;
    const makes = graph.value_maker[v] < 0 ? [0] : timeline.makes()[v];
    const lasts = graph.value_maker[v] < 0 || graph.value_survives[v];
    const periods = lasts || !anew ? makes.slice(0, 1) : makes;
    periods.forEach((made, k) => {
      const from = Math.max(0, made - 1),
        last = lasts ? end : timeline.lastUse(v, anew ? made : 0),
        to = (k === periods.length - 1 ? gone.get(v) : undefined) ?? last;
      const low = address.get(made ? `${v} ${made}` : `${v}`);
      lives.push({ value: v, level: null, from, to: Math.max(to, from + 0.5), low });
    });
  });
  return lives;
}

/**
 * The room taken after each number of moves, as [step, units] where it changes, and its peak.
 * @param {Life[]} lives
 * @param {number[]} sizes
 */
function roomOf(lives, sizes) {
  /** @type {Map<number, number>} */
  const change = new Map();
  for (const life of lives) {
    change.set(life.from, (change.get(life.from) || 0) + sizes[life.value]);
    change.set(life.to, (change.get(life.to) || 0) - sizes[life.value]);
  }
  let sum = 0,
    peak = { at: 0, units: 0 };
  const line = [...change.entries()]
    .sort((a, b) => a[0] - b[0])
    .map(([at, by]) => {
      sum += by;
      if (sum > peak.units) peak = { at, units: sum };
      return [at, sum];
    });
  return { line, peak };
}
