// One plan in time: the judgement of any list of moves, where every value is after each move, and when it is used next.

/**
 * The levels and prices that a plan is played with.
 * @param {Pick<PlanData, "machine" | "capacity" | "steady" | "start">} plan
 * @returns {Arena}
 */
function arenaOf(plan) {
  const machine = plan.machine;
  return {
    names: machine.level.map((level) => level.name),
    capacity: plan.capacity,
    read: machine.level.map((level) => level.read),
    write: machine.level.map((level) => level.write),
    management: machine.management || "explicit",
    fastestOnly: (machine.operands || "fastest") === "fastest",
    over: machine.results === "over",
    allocator: machine.allocator || "reuse",
    line: machine.line || 1,
    steady: plan.steady,
    start: plan.start,
  };
}

/**
 * A cache keeps every value somewhere, so there the order alone is judged, on one endless level.
 * @param {Graph} graph
 * @param {Arena} arena
 */
function judgingArena(graph, arena) {
  if (arena.management === "explicit") return arena;
  return {
    ...arena,
    names: arena.names.slice(-1),
    capacity: [2 ** 52],
    read: [0],
    write: [0],
    fastestOnly: false,
    over: false,
    steady: false,
    start: graph.value_maker.map((maker) => (maker < 0 ? 1 : 0)),
  };
}

/**
 * What the referee says of these moves: the port of pebbler.referee.check.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {Moves} moves
 * @returns {Judgement}
 */
function judge(graph, arena, moves) {
  effects(graph);
  const explicit = arena.management === "explicit";
  const start = explicit ? startError(graph, arena) : null;
  if (start !== null) {
    return { ...play(graph, arena, sliceMoves(moves, 0)), legal: false, error: `start: ${start}`, move: null };
  }
  if (explicit) return play(graph, arena, moves);
  const foreign = moves.kind.findIndex((kind) => kind !== COMPUTE);
  const playable = foreign < 0 ? moves.kind.length : foreign;
  const leading = sliceMoves(moves, playable);
  leading.level = leading.level.map(() => 0);
  const judgement = play(graph, judgingArena(graph, arena), leading);
  let { legal, error, move } = judgement;
  if (foreign >= 0 && judgement.move === null) {
    const what = ["compute", "copy", "drop"][moves.kind[foreign]];
    legal = false;
    move = foreign + 1;
    error = `move ${move}: a ${what}, but under management '${arena.management}' moves are computes only`;
  }
  const order = legal ? Array.from(moves.subject) : [];
  const books = (arena.management === "recency" ? priceRecency : priceLru)(graph, arena, order);
  const energy = books.levels.reduce((sum, part) => sum + part, 0);
  return { ...books, legal, error, move, energy, played: legal ? order.length : judgement.played };
}

/**
 * In a steady plan every input arrives in the slowest level, and only there.
 * @param {Graph} graph
 * @param {Arena} arena
 */
function startError(graph, arena) {
  if (!arena.steady) return null;
  const slowest = arena.names.length - 1;
  for (let v = 0; v < graph.value_tensor.length; v++) {
    const t = graph.value_tensor[v];
    if (graph.value_maker[v] < 0 && graph.tensor_kind[t] === "input" && (arena.start[v] | 0) !== 1 << slowest) {
      return `in a steady plan input ${graph.tensor_name[t]} arrives in ${arena.names[slowest]}, and only there`;
    }
  }
  return null;
}

/**
 * The first `count` moves.
 * @param {Moves} moves
 * @param {number} count
 * @returns {Moves}
 */
function sliceMoves(moves, count) {
  return {
    kind: moves.kind.slice(0, count),
    subject: moves.subject.slice(0, count),
    level: moves.level.slice(0, count),
    to: moves.to.slice(0, count),
  };
}

/**
 * The moves rearranged: `order` lists positions in the given ones.
 * @param {Moves} moves
 * @param {number[]} order
 * @returns {Moves}
 */
function permuteMoves(moves, order) {
  /** @param {number[]} list */
  const pick = (list) => order.map((i) => list[i]);
  return { kind: pick(moves.kind), subject: pick(moves.subject), level: pick(moves.level), to: pick(moves.to) };
}

/**
 * How deep in the stack each level of a cache ends; a level takes whole lines only, so what is left over at its end stays empty.
 * @param {Arena} arena
 */
function levelEnds(arena) {
  const lru = arena.management !== "recency";
  let sum = 0;
  return arena.capacity.map((room, k) => {
    sum += room;
    if (k === arena.capacity.length - 1) return Infinity;
    return lru ? Math.floor(sum / arena.line) * arena.line : sum;
  });
}

/**
 * The values of each tensor.
 * @param {Graph} graph
 */
const versionsOf = (graph) =>
  once(graph, "versions", () => {
    const versions = emptyLists(graph.tensor_name.length);
    graph.value_tensor.forEach((t, v) => versions[t].push(v));
    return versions;
  });

/**
 * The values whose places a move may change; before the first move, all.
 * @param {Graph} graph
 * @param {Moves} moves
 * @param {number} i
 */
function touchedBy(graph, moves, i) {
  if (i < 0) return graph.value_tensor.keys();
  const { writes, destroys } = effects(graph),
    subject = moves.subject[i];
  return moves.kind[i] === COMPUTE ? [...destroys[subject], ...writes[subject]] : versionsOf(graph)[subject];
}

const SNAPSHOT = 256; // moves between two states that are kept, so that scrubbing through long plans replays little

/** A plan's moves in time: judgement, running energy, and the place of every value after any move. */
class Timeline {
  /**
   * @param {Graph} graph
   * @param {PlanData} plan
   * @param {Moves} moves
   * @param {Judgement} [judgement]
   */
  constructor(graph, plan, moves, judgement) {
    this.graph = graph;
    this.arena = arenaOf(plan);
    this.moves = moves;
    this.judgement = judgement || judge(graph, this.arena, moves);
    this.length = moves.kind.length;
    this.running = [0];
    for (let i = 0; i < this.judgement.steps.length; i++) this.running.push(this.running[i] + this.judgement.steps[i]);
    /** @type {{step: number, places: Places} | null} */
    this.memo = null; // the places asked for last
  }

  /**
   * Energy paid by the first `step` moves; of an order that is priced as a whole and illegal, nothing is known.
   * @param {number} step
   */
  energyAt(step) {
    return this.running[Math.min(step, this.running.length - 1)];
  }

  /**
   * Where every value is after the first `step` moves: per value an array of units per level, null where it is nowhere.
   * @param {number} step
   */
  places(step) {
    return this.arena.management === "explicit" ? this.explicitPlaces(step) : this.cachePlaces(step);
  }

  /**
   * Units held by each level after `step` moves; a cache also holds lines of values that nobody needs any more.
   * @param {number} step
   */
  used(step) {
    const places = this.places(step);
    if (places.used) return places.used;
    const used = zeros(this.arena.names.length);
    for (const place of places)
      if (place)
        place.forEach((units, level) => {
          used[level] += units;
        });
    return used;
  }

  /** @param {number} step */
  explicitPlaces(step) {
    const wanted = Math.max(0, Math.min(step, this.snapshots().legal));
    if (this.memo && this.memo.step === wanted) return this.memo.places;
    const present = this.replay(wanted);
    /** @type {Places} */
    const places = this.graph.value_size.map((size, v) =>
      present[v] ? this.arena.names.map((_, level) => ((present[v] >> level) & 1 ? Math.max(size, 0) : 0)) : null,
    );
    places.bits = present;
    this.memo = { step: wanted, places };
    return places;
  }

  /** The bits of every value after every so many legal moves, and how many moves are legal. */
  snapshots() {
    return once(this, "snapshots", () => {
      /** @type {Int32Array[]} */
      const states = [];
      let legal = 0;
      play(this.graph, this.arena, this.moves, (i, present) => {
        legal = i + 1;
        if (legal % SNAPSHOT === 0) states.push(Int32Array.from(present));
      });
      return { states, legal };
    });
  }

  /** Per move, whether it is the first run of an op. */
  firstRuns() {
    return once(this, "first runs", () => {
      const ran = new Set();
      return this.moves.kind.map((kind, i) => {
        const first = kind === COMPUTE && !ran.has(this.moves.subject[i]);
        if (first) ran.add(this.moves.subject[i]);
        return first;
      });
    });
  }

  /**
   * The bits of every value after `step` legal moves, from the nearest snapshot on.
   * @param {number} step
   */
  replay(step) {
    const { graph, moves } = this,
      { writes, destroys } = effects(graph),
      firstRuns = this.firstRuns();
    const key = Math.floor(step / SNAPSHOT),
      present = Int32Array.from(this.snapshots().states[key] || this.arena.start);
    for (let i = key * SNAPSHOT; i < step; i++) {
      const subject = moves.subject[i],
        bit = 1 << moves.level[i];
      if (moves.kind[i] === COMPUTE) {
        if (firstRuns[i])
          destroys[subject].forEach((v) => {
            present[v] = 0;
          });
        writes[subject].forEach((v) => {
          present[v] |= bit;
        });
      } else {
        const v = this.heldAt(subject, present);
        if (v >= 0) present[v] = moves.kind[i] === COPY ? present[v] | (1 << moves.to[i]) : present[v] & ~bit;
      }
    }
    return present;
  }

  /**
   * The value of a tensor that is present; at most one version is at any time.
   * @param {number} tensor
   * @param {Int32Array} present
   */
  heldAt(tensor, present) {
    return versionsOf(this.graph)[tensor].find((v) => present[v]) ?? NONE;
  }

  /** @param {number} step */
  cachePlaces(step) {
    if (this.memo && this.memo.step === step) return this.memo.places;
    const { graph, arena } = this,
      alive = this.aliveValues(step),
      lru = arena.management !== "recency";
    /** @type {Places} */
    const places = graph.value_tensor.map((_, v) => (alive[v] ? zeros(arena.names.length) : null));
    const ends = levelEnds(arena),
      used = zeros(arena.names.length);
    if (lru) places.used = used;
    /** @type {Sink} */
    const sink = (value, from, units) => {
      for (let k = 0, to = from + units; k < ends.length && from < to; k++) {
        const end = Math.min(to, ends[k]);
        if (end > from) {
          const place = value === null ? null : places[value];
          if (place) place[k] += end - from;
          used[k] += end - from;
          from = end;
        }
      }
    };
    if (lru) this.lineStack(step, alive, sink);
    else this.recencyStack(step, alive, sink);
    // What was never touched lies in the last level.
    places.forEach((place, v) => {
      if (!place || place.some((units) => units > 0)) return;
      const units = lru ? Math.ceil(graph.value_size[v] / arena.line) * arena.line : graph.value_size[v];
      place[place.length - 1] = units;
      used[place.length - 1] += units;
    });
    this.memo = { step, places };
    return places;
  }

  /**
   * Which values exist after `step` computes: made, not overwritten, and still of use before they are made again.
   * @param {number} step
   */
  aliveValues(step) {
    const { graph } = this,
      { writes, destroys } = effects(graph),
      alive = new Uint8Array(graph.value_tensor.length);
    // By the recency rule a value is live until its very last use, whether it is made again before that or not.
    const anew = this.arena.management !== "recency";
    graph.value_maker.forEach((maker, v) => {
      if (maker < 0) alive[v] = 1;
    });
    for (let i = 0; i < Math.min(step, this.length); i++) {
      if (this.moves.kind[i] !== COMPUTE) continue;
      destroys[this.moves.subject[i]].forEach((v) => {
        alive[v] = 0;
      });
      writes[this.moves.subject[i]].forEach((v) => {
        alive[v] = i + 1 === step || graph.value_survives[v] || this.lastUse(v, anew ? i + 1 : 0) > step ? 1 : 0;
      });
    }
    return alive;
  }

  /** Moves (1-based) that make each value, first and later ones; empty for what exists at the start. */
  makes() {
    return once(this, "makes", () => {
      const { writes } = effects(this.graph),
        makes = emptyLists(this.graph.value_tensor.length);
      this.moves.kind.forEach((kind, i) => {
        if (kind === COMPUTE) writes[this.moves.subject[i]].forEach((v) => makes[v].push(i + 1));
      });
      return makes;
    });
  }

  /**
   * The last move that uses a value as it was made by move `made` (0: by any), before it is made again; 0 if none does.
   * @param {number} value
   * @param {number} made
   */
  lastUse(value, made) {
    const again = made ? this.makes()[value].find((at) => at > made) : undefined;
    const uses = this.uses()[value];
    if (again === undefined) return uses.length ? uses[uses.length - 1] : 0;
    let last = 0;
    for (const at of uses) if (at > made && at < again) last = at;
    return last;
  }

  /**
   * The recency rule's stack: live tensors by the step of their last access, ties by first insertion.
   * @param {number} step
   * @param {Uint8Array} alive
   * @param {Sink} sink
   */
  recencyStack(step, alive, sink) {
    const { graph, moves } = this,
      { reads, writes } = effects(graph),
      accessed = graph.value_tensor.map(() => 0);
    for (let i = 0; i < Math.min(step, this.length); i++) {
      const o = moves.subject[i];
      if (moves.kind[i] === COMPUTE)
        [...reads[o], ...writes[o]].forEach((v) => {
          accessed[v] = i + 1;
        });
    }
    const live = graph.value_tensor.map((_, v) => v).filter((v) => alive[v]);
    let above = 0;
    for (const v of live.sort((a, b) => accessed[b] - accessed[a] || a - b)) {
      sink(v, above, graph.value_size[v]);
      above += graph.value_size[v];
    }
  }

  /** What the plan touches, in pieces that are equal or share no line; up to the first move that is no compute. */
  cutPieces() {
    return once(this, "pieces", () => {
      const computes = this.moves.kind.findIndex((kind) => kind !== COMPUTE);
      const order = this.moves.subject.slice(0, computes < 0 ? this.length : computes);
      return cutPieces(touchesOf(this.graph, this.arena, order), this.arena.line);
    });
  }

  /**
   * The LRU stack of lines, each once; a steady loop begins with what the round before has left.
   * @param {number} step
   * @param {Uint8Array} alive
   * @param {Sink} sink
   */
  lineStack(step, alive, sink) {
    const { graph, arena } = this;
    const { pieces, items } = this.cutPieces(),
      last = new Int32Array(items).fill(-1),
      round = pieces.length;
    // Where each storage is now: what is made again may be put elsewhere, and its old lines are then nobody's.
    /** @type {Map<number, number>} */
    const address = new Map();
    if (arena.steady)
      pieces.forEach((piece, i) => {
        last[piece.item] = i;
        address.set(piece.touch.root, piece.touch.address);
      });
    for (let i = 0; i < round && pieces[i].touch.step < step; i++) {
      last[pieces[i].item] = round + i;
      address.set(pieces[i].touch.root, pieces[i].touch.address);
    }
    /** @type {Map<number, number>} */
    const holder = new Map();
    graph.value_tensor.forEach((t, v) => {
      if (alive[v]) holder.set(graph.storage[t], v);
    });
    let above = 0;
    for (const at of last.filter((at) => at >= 0).sort((a, b) => b - a)) {
      const { touch, lines } = pieces[at % round],
        value = address.get(touch.root) === touch.address ? holder.get(touch.root) : undefined,
        units = lines * arena.line;
      sink(value === undefined ? null : value, above, units);
      above += units;
    }
  }

  /** Moves (1-based) that use each value: reads and copies, in order. */
  uses() {
    return once(this, "uses", () => this.makeUses());
  }

  makeUses() {
    const { graph, moves } = this,
      { reads, writes, destroys } = effects(graph);
    const uses = emptyLists(graph.value_tensor.length),
      current = new Int32Array(graph.tensor_name.length).fill(NONE);
    graph.value_maker.forEach((maker, v) => {
      if (maker < 0) current[graph.value_tensor[v]] = v;
    });
    const ran = new Uint8Array(graph.op_name.length);
    for (let i = 0; i < this.length; i++) {
      const subject = moves.subject[i];
      if (moves.kind[i] === COMPUTE) {
        new Set(reads[subject]).forEach((v) => uses[v].push(i + 1));
        if (!ran[subject]) {
          ran[subject] = 1;
          destroys[subject].forEach((v) => {
            current[graph.value_tensor[v]] = NONE;
          });
          writes[subject].forEach((v) => {
            current[graph.value_tensor[v]] = v;
          });
        }
      } else if (moves.kind[i] === COPY && current[subject] >= 0) uses[current[subject]].push(i + 1);
    }
    return uses;
  }

  /**
   * The first move after `step` that uses a value, or null.
   * @param {number} value
   * @param {number} step
   */
  nextUse(value, step) {
    const list = this.uses()[value];
    let low = 0,
      high = list.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (list[mid] > step) high = mid;
      else low = mid + 1;
    }
    return low < list.length ? list[low] : null;
  }
}
