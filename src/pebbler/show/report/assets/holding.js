// What each level holds after chosen moves: one pass over the plan, however many are asked for.

/**
 * Calls visit(step, level, held) for every step and level asked for, in order of steps. `held` lists [value, units]; a value of -1
 * are lines in a cache that nothing needs any more. `wanted` has, per level, an ascending list of steps.
 * @param {Timeline} timeline
 * @param {number[][]} wanted
 * @param {(step: number, level: number, held: Held[]) => void} visit
 */
function sweepHeld(timeline, wanted, visit) {
  /** @type {Map<number, number[]>} */
  const byStep = new Map(); // the levels asked for
  wanted.forEach((steps, level) => steps.forEach((step) => entryOf(byStep, step, () => []).push(level)));
  const steps = [...byStep.keys()].sort((a, b) => a - b),
    { management } = timeline.arena,
    sweep = management === "explicit" ? explicitSweep : management === "lru" ? lruSweep : recencySweep;
  sweep(timeline, steps, (step, heldIn) => {
    for (const level of byStep.get(step) || []) visit(step, level, heldIn(level));
  });
}

/** @type {Sweep} */
function explicitSweep(timeline, steps, visit) {
  const { graph, arena, moves } = timeline,
    size = graph.value_size;
  /** @type {Set<number>[]} */
  const held = arena.names.map(() => new Set());
  /**
   * Where results may go over operands, a result has the room of what is dropped right after: only then is what is held settled.
   * @param {number} step
   */
  const settled = (step) => {
    while (arena.over && step > 0 && step < moves.kind.length && moves.kind[step] === DROP) step++;
    return step;
  };
  let next = 0;
  const before = new Int32Array(size.length);
  play(graph, arena, moves, (i, present) => {
    for (const v of touchedBy(graph, moves, i)) {
      const changed = before[v] ^ present[v];
      before[v] = present[v];
      for (let k = 0; k < held.length; k++)
        if ((changed >>> k) & 1) {
          if ((present[v] >>> k) & 1) held[k].add(v);
          else held[k].delete(v);
        }
    }
    while (next < steps.length && settled(steps[next]) === i + 1) {
      visit(steps[next], (level) => Array.from(held[level], (v) => [v, size[v]]));
      next++;
    }
  });
}


/** @type {Sweep} */
function recencySweep(timeline, steps, visit) {
  for (const step of steps) {
    const places = timeline.places(step);
    visit(step, (level) => {
      /** @type {Held[]} */
      const held = [];
      places.forEach((place, v) => {
        if (place && place[level] > 0) held.push([v, place[level]]);
      });
      return held;
    });
  }
}

/**
 * The LRU stack as a linked list of pieces, so that a touch costs the same however long it is.
 * @type {Sweep}
 */
function lruSweep(timeline, steps, visit) {
  const { graph, arena } = timeline,
    { pieces, items } = timeline.cutPieces(),
    { writes, destroys } = effects(graph);
  const head = items, // a sentinel: the item above the most recent one
    below = new Int32Array(items + 1).fill(-1),
    above = new Int32Array(items + 1).fill(-1),
    latest = new Int32Array(items).fill(-1);
  /** @type {Map<number, number>} */
  const address = new Map(); // of each storage
  below[head] = above[head] = head;
  /** @param {number} i */
  const touch = (i) => {
    const { item, touch: one } = pieces[i];
    if (latest[item] >= 0) {
      below[above[item]] = below[item];
      above[below[item]] = above[item];
    }
    below[item] = below[head];
    above[item] = head;
    above[below[head]] = item;
    below[head] = item;
    latest[item] = i;
    address.set(one.root, one.address);
  };
  if (arena.steady) pieces.forEach((_, i) => touch(i));
  // Who is in each storage, and until which move it is of use.
  /** @type {Map<number, {value: number, from: number, until: number}>} */
  const holder = new Map();
  graph.value_maker.forEach((maker, v) => {
    if (maker < 0) holder.set(graph.storage[graph.value_tensor[v]], { value: v, from: 0, until: Infinity });
  });
  const ends = levelEnds(arena);
  let piece = 0,
    done = 0;
  for (const step of steps) {
    for (; done < step; done++) {
      for (; piece < pieces.length && pieces[piece].touch.step <= done; piece++) touch(piece);
      const o = timeline.moves.subject[done];
      for (const v of destroys[o]) holder.delete(graph.storage[graph.value_tensor[v]]);
      for (const v of writes[o])
        holder.set(graph.storage[graph.value_tensor[v]], {
          value: v,
          from: done + 1,
          until: graph.value_survives[v] ? Infinity : timeline.lastUse(v, done + 1),
        });
    }
    /** @type {Map<number, number>[]} */
    const held = arena.names.map(() => new Map()),
      found = new Set();
    let from = 0,
      k = 0;
    for (let item = below[head]; item !== head; item = below[item]) {
      const { touch: one, lines } = pieces[latest[item]],
        who = holder.get(one.root),
        needed = who && address.get(one.root) === one.address && (who.until > step || who.from === step),
        v = needed ? who.value : -1;
      found.add(v);
      for (let left = lines * arena.line; left > 0;) {
        while (from >= ends[k]) k++;
        const part = Math.min(left, ends[k] - from);
        held[k].set(v, (held[k].get(v) || 0) + part);
        from += part;
        left -= part;
      }
    }
    // What was never touched lies in the last level.
    for (const { value, from: made, until } of holder.values())
      if (!found.has(value) && (until > step || made === step))
        held[held.length - 1].set(value, Math.ceil(graph.value_size[value] / arena.line) * arena.line);
    visit(step, (level) => [...held[level]]);
  }
}
