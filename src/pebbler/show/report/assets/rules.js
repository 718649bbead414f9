// The referee's rules for explicit memories, as in pebbler/kernels/referee.py: plays moves and stops at the first illegal one.
// The tests hold this file against the Python referee, move by move, on random plans.

const COMPUTE = 0,
  COPY = 1,
  DROP = 2;
const NONE = -1;

/**
 * The values row[i] of flat rows {start, items}.
 * @param {RowsData} rows
 * @param {number} i
 */
function row(rows, i) {
  return rows.items.slice(rows.start[i], rows.start[i + 1]);
}

/**
 * What an op does to values, as arrays per op; made once per graph.
 * @param {Graph} graph
 */
function effects(graph) {
  if (!graph.effects) {
    /** @type {(rows: RowsData, count: number) => number[][]} */
    const list = (rows, count) => Array.from({ length: count }, (_, i) => row(rows, i));
    const ops = graph.op_name.length;
    graph.effects = {
      reads: list(graph.reads, ops),
      writes: list(graph.writes, ops),
      destroys: list(graph.destroys, ops),
      readers: list(graph.readers, graph.value_tensor.length),
    };
    graph.value_size = graph.value_tensor.map((t) => graph.tensor_size[t]);
    graph.op_in_place = graph.effects.destroys.map((values) => values.length > 0);
  }
  return graph.effects;
}

/**
 * Names in messages, as pebbler.errors.quoted writes the plain ones.
 * @param {Graph} graph
 * @param {number} v
 */
function valueName(graph, v) {
  return `${graph.tensor_name[graph.value_tensor[v]]} (version ${graph.value_version[v]})`;
}

/**
 * Play moves {kind, subject, level, to}; stop at the first illegal one.
 * `arena` has capacity, read and write prices per level, fastestOnly, over, steady and start (bits of levels per value).
 * Returns {legal, error, move (1-based or null), energy, levels, tensors, ops, kinds, steps, spent, served, peak, played};
 * `spent` is energy and `served` units read, per move and level: that of move i in level k is at i * levels + k.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {Moves} moves
 * @param {Visit} [visit]
 * @returns {Judgement}
 */
function play(graph, arena, moves, visit) {
  const { reads, writes, destroys, readers } = effects(graph);
  const { value_tensor: tensorOf, value_size: size, value_maker: maker } = graph;
  const levels = arena.capacity.length,
    values = tensorOf.length,
    ops = reads.length;
  const present = arena.start.map((bits) => bits | 0),
    made = new Uint8Array(values),
    lost = new Uint8Array(values);
  const overwritten = new Uint8Array(values),
    ran = new Uint8Array(ops);
  const current = new Int32Array(graph.tensor_name.length).fill(NONE);
  const used = zeros(levels);
  const books = emptyBooks(graph, levels, 0);
  /** @type {(number: number) => string} */
  const op = (i) => graph.op_name[i],
    value = (v) => valueName(graph, v),
    level = (i) => arena.names[i];
  /** @type {(place: number | string, reason: string | null) => Judgement} */
  const finish = (place, reason) => {
    const energy = books.levels.reduce((sum, part) => sum + part, 0);
    const move = typeof place === "number" ? place + 1 : null;
    const error = reason === null ? null : `${move === null ? place : `move ${move}`}: ${reason}`;
    return { ...books, legal: reason === null, error, move, energy, played: books.steps.length };
  };
  /** @param {number} i */
  const overflow = (i) =>
    `${level(i)} would hold ${used[i].toLocaleString("en")} ${used[i] === 1 ? "unit" : "units"}; ` +
    `its capacity is ${arena.capacity[i].toLocaleString("en")}`;

  /** @param {number} v */
  const recoverable = (v) => {
    const m = maker[v];
    if (m < 0 || graph.op_once[m] || graph.op_in_place[m]) return false;
    return !writes[m].some((w) => overwritten[w]) && !reads[m].some((r) => lost[r]);
  };
  /**
   * Marks a value as gone for good with everything that could only be had from it; returns what is still needed and by whom.
   * @param {number} first
   */
  const lose = (first) => {
    let needed = NONE,
      by = NONE;
    lost[first] = 1;
    const stack = [first];
    /** @param {number} o */
    const drag = (o) => {
      for (const w of writes[o])
        if (made[w] && !present[w] && !lost[w]) {
          lost[w] = 1;
          stack.push(w);
        }
    };
    for (let v = stack.pop(); v !== undefined; v = stack.pop()) {
      if (needed < 0) {
        const reader = readers[v].find((o) => !ran[o]);
        if (reader !== undefined) [needed, by] = [v, reader];
        else if (graph.value_survives[v]) needed = v;
      }
      readers[v].forEach(drag);
      if (overwritten[v] && maker[v] >= 0) drag(maker[v]);
    }
    if (needed < 0) return null;
    const who = by < 0 ? "the end" : op(by);
    return needed === first
      ? `${value(first)} is lost, which ${who} still needs and nothing can recompute`
      : `${value(first)} is lost, and with it ${value(needed)}, which ${who} still needs and nothing can recompute`;
  };

  for (let v = 0; v < values; v++) {
    if (maker[v] >= 0) continue;
    made[v] = 1;
    current[tensorOf[v]] = v;
    for (let at = 0; at < levels; at++) if ((present[v] >> at) & 1) used[at] += size[v];
  }
  books.peak = used.slice();
  for (let at = 0; at < levels; at++) if (used[at] > arena.capacity[at]) return finish("start", overflow(at));
  if (visit) visit(-1, present, used, ran);

  // Nothing of an illegal move is in any book, so a move is entered only once it has proved legal.
  /** @type {[where: number, tensor: number, amount: number, read: number][]} */
  let owed = [];
  /** @type {(where: number, v: number, amount: number, read?: number) => number} */
  const pay = (where, v, amount, read = 0) => owed.push([where, tensorOf[v], amount, read]);
  const count = moves.kind.length;
  let crowded = NONE; // the level whose result takes the room of what the next moves drop
  for (let i = 0; i < count; i++) {
    /** @type {string | null} */
    let lossError = null;
    let at = moves.level[i];
    owed = [];
    if (moves.kind[i] === COMPUTE) {
      const o = moves.subject[i];
      if (arena.fastestOnly && at !== 0) {
        return finish(i, `results of ${op(o)} must go to the fastest level (${level(0)}), not to ${level(at)}`);
      }
      if (ran[o]) {
        if (graph.op_once[o] || graph.op_in_place[o]) {
          const why = graph.op_once[o] ? "it is marked once" : "it updates in place";
          return finish(i, `${op(o)} has run and cannot run again: ${why}`);
        }
        const stale = writes[o].find((w) => overwritten[w]);
        if (stale !== undefined) {
          const by = op(graph.value_destroyer[stale]);
          return finish(i, `running ${op(o)} again would bring back ${value(stale)}, which ${by} has overwritten`);
        }
      }
      for (const v of reads[o]) {
        if (!made[v]) return finish(i, `${op(o)} reads ${value(v)}, which ${op(maker[v])} has not made yet`);
        if (!present[v]) return finish(i, `${op(o)} reads ${value(v)}, which is in no level any more`);
        if (arena.fastestOnly && !(present[v] & 1)) {
          return finish(i, `${op(o)} reads ${value(v)}, which is not in the fastest level (${level(0)})`);
        }
      }
      pay(at, writes[o].length ? writes[o][0] : reads[o][0], graph.op_cost[o]);
      if (!arena.fastestOnly) {
        for (const v of reads[o]) {
          let source = 0;
          while (!((present[v] >> source) & 1)) source++;
          pay(source, v, size[v] * arena.read[source], size[v]);
        }
        for (const v of writes[o]) pay(at, v, size[v] * arena.write[at]);
      } else for (const v of reads[o]) pay(0, v, 0, size[v]);
      const firstRun = !ran[o];
      ran[o] = 1;
      if (firstRun) {
        for (const v of destroys[o]) {
          if (!made[v]) return finish(i, `${op(o)} overwrites ${value(v)} before ${op(maker[v])} writes it`);
          const pending = readers[v].find((r) => !ran[r]);
          if (pending !== undefined) return finish(i, `${op(o)} overwrites ${value(v)} before ${op(pending)} reads it`);
          for (let a = 0; a < levels; a++) if ((present[v] >> a) & 1) used[a] -= size[v];
          present[v] = 0;
          overwritten[v] = 1;
          if (current[tensorOf[v]] === v) current[tensorOf[v]] = NONE;
        }
      }
      for (const v of writes[o]) {
        made[v] = 1;
        if (firstRun) current[tensorOf[v]] = v;
        if (!((present[v] >> at) & 1)) {
          present[v] |= 1 << at;
          used[at] += size[v];
        }
      }
      if (firstRun) {
        for (const v of destroys[o])
          if (overwritten[v] && !lost[v] && (lossError = lose(v))) return finish(i, lossError);
      }
    } else {
      const t = moves.subject[i],
        v = current[t],
        name = graph.tensor_name[t];
      if (v < 0 || !((present[v] >> at) & 1)) return finish(i, `${name} is not in ${level(at)}`);
      if (moves.kind[i] === COPY) {
        const goal = moves.to[i];
        if (goal === at) return finish(i, `copies ${name} from ${level(at)} to the same level`);
        pay(at, v, size[v] * arena.read[at], size[v]);
        pay(goal, v, size[v] * arena.write[goal]);
        if (!((present[v] >> goal) & 1)) {
          present[v] |= 1 << goal;
          used[goal] += size[v];
        }
        at = goal;
      } else {
        present[v] &= ~(1 << at);
        used[at] -= size[v];
        if (!present[v] && !recoverable(v) && (lossError = lose(v))) return finish(i, lossError);
      }
    }
    if (arena.over && moves.kind[i] === COMPUTE) crowded = at;
    const waits = crowded >= 0 && used[crowded] > arena.capacity[crowded];
    if (waits && moves.kind[i + 1] !== DROP) return finish(i, overflow(crowded));
    if (!waits && used[at] > arena.capacity[at]) return finish(i, overflow(at));
    let energy = 0;
    const line = books.steps.length * levels;
    for (let k = 0; k < levels; k++) books.spent[line + k] = books.served[line + k] = 0;
    for (const [where, t, amount, read] of owed) {
      energy += amount;
      books.spent[line + where] += amount;
      books.served[line + where] += read;
      books.levels[where] += amount;
      books.tensors[t] += amount;
    }
    books.kinds[moves.kind[i]] += energy;
    if (moves.kind[i] === COMPUTE) books.ops[moves.subject[i]] += energy;
    books.steps.push(energy);
    if (!waits) {
      for (const k of crowded < 0 ? [at] : [crowded, at]) books.peak[k] = Math.max(books.peak[k], used[k]);
      crowded = NONE;
    }
    if (visit) visit(i, present, used, ran);
  }
  return finish("end", endError(graph, arena, present, ran));
}

/** @type {(count: number) => number[]} */
const zeros = (count) => new Array(count).fill(0);
/** @type {(count: number) => number[][]} */
const emptyLists = (count) => Array.from({ length: count }, () => []);

/**
 * Books in which nothing is entered, with room for so many moves.
 * @param {Graph} graph
 * @param {number} levels
 * @param {number} steps
 * @returns {Books}
 */
function emptyBooks(graph, levels, steps) {
  return {
    levels: zeros(levels),
    tensors: zeros(graph.tensor_name.length),
    ops: zeros(graph.op_name.length),
    kinds: [0, 0, 0],
    steps: zeros(steps),
    spent: zeros(steps * levels),
    served: zeros(steps * levels),
    peak: [],
  };
}

/**
 * What is wrong at the end of the moves, or null.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {number[]} present
 * @param {Uint8Array} ran
 */
function endError(graph, arena, present, ran) {
  const idle = ran.indexOf(0);
  if (idle >= 0) return `${graph.op_name[idle]} has not run`;
  for (let v = 0; v < present.length; v++) {
    if (graph.value_survives[v] && !present[v]) return `${valueName(graph, v)} must survive, but is in no level`;
  }
  if (!arena.steady) return null;
  /** @param {number} bits */
  const words = (bits) => arena.names.filter((_, i) => (bits >> i) & 1).join(" and ") || "no level";
  /** @type {number[]} */
  const held = []; // by storage: the last version that it gets
  graph.value_tensor.forEach((t, v) => {
    held[graph.storage[t]] = v;
  });
  for (let t = 0; t < graph.tensor_name.length; t++) {
    if (graph.tensor_kind[t] !== "param") continue;
    const first = graph.value_tensor.findIndex((of, v) => of === t && graph.value_maker[v] < 0);
    const last = held[graph.storage[t]];
    if (present[last] !== (arena.start[first] | 0)) {
      return (
        `a steady plan must leave ${valueName(graph, last)} in ${words(arena.start[first])}, ` +
        `where its param started, not in ${words(present[last])}`
      );
    }
  }
  return null;
}
