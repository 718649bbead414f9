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
 */
function judge(graph, arena, moves, visit) {
  effects(graph);
  const explicit = arena.management === "explicit";
  const start = explicit ? startError(graph, arena) : null;
  if (start !== null) {
    return { ...play(graph, arena, sliceMoves(moves, 0), visit), legal: false, error: `start: ${start}`, move: null };
  }
  if (explicit) return play(graph, arena, moves, visit);
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

/** @param {Moves} moves */
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
 */
function permuteMoves(moves, order) {
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
    this.keys = null;
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
    const used = this.arena.names.map(() => 0);
    for (const place of places)
      if (place)
        place.forEach((units, level) => {
          used[level] += units;
        });
    return used;
  }

  /** @param {number} step */
  explicitPlaces(step) {
    // Snapshots of the bits every few hundred moves, so that scrubbing through long plans replays little.
    const every = 256;
    if (!this.keys) {
      this.keys = [];
      this.states = [];
      play(this.graph, this.arena, this.moves, (i, present) => {
        if ((i + 1) % every === 0) this.keys[(i + 1) / every] = Int32Array.from(present);
        this.states[i + 1] = null;
      });
    }
    const legalSteps = this.states.length - 1;
    const wanted = Math.max(0, Math.min(step, legalSteps));
    if (this.memo && this.memo.step === wanted) return this.memo.places;
    const present = this.replay(wanted, every);
    /** @type {Places} */
    const places = this.graph.value_size.map((size, v) =>
      present[v] ? this.arena.names.map((_, level) => ((present[v] >> level) & 1 ? Math.max(size, 0) : 0)) : null,
    );
    places.bits = present;
    this.memo = { step: wanted, places };
    return places;
  }

  /**
   * The bits of every value after `step` legal moves, from the nearest snapshot on.
   * @param {number} step
   */
  replay(step, every) {
    const { graph, moves } = this,
      { writes, destroys } = effects(graph);
    if (!this.firstRuns) {
      this.firstRuns = new Uint8Array(this.length);
      const ran = new Uint8Array(graph.op_name.length);
      moves.kind.forEach((kind, i) => {
        if (kind === COMPUTE && !ran[moves.subject[i]]) {
          ran[moves.subject[i]] = 1;
          this.firstRuns[i] = 1;
        }
      });
    }
    const key = Math.floor(step / every),
      present = Int32Array.from(this.keys[key] || this.arena.start);
    for (let i = key * every; i < step; i++) {
      const subject = moves.subject[i],
        bit = 1 << moves.level[i];
      if (moves.kind[i] === COMPUTE) {
        if (this.firstRuns[i])
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

  /** The value of a tensor that is present; at most one version is at any time. */
  heldAt(tensor, present) {
    if (!this.valuesOf) {
      this.valuesOf = this.graph.tensor_name.map(() => []);
      this.graph.value_tensor.forEach((t, v) => this.valuesOf[t].push(v));
    }
    const held = this.valuesOf[tensor].find((v) => present[v]);
    return held === undefined ? NONE : held;
  }

  /** @param {number} step */
  cachePlaces(step) {
    if (this.memo && this.memo.step === step) return this.memo.places;
    const { graph, arena } = this,
      alive = this.aliveValues(step),
      lru = arena.management !== "recency";
    /** @type {Places} */
    const places = graph.value_tensor.map((_, v) => (alive[v] ? arena.names.map(() => 0) : null));
    if (lru) places.used = arena.names.map(() => 0);
    const ends = levelEnds(arena);
    const sink = (value, from, units) => {
      for (let k = 0, to = from + units; k < ends.length && from < to; k++) {
        const end = Math.min(to, ends[k]);
        if (end > from) {
          if (value !== null && places[value]) places[value][k] += end - from;
          if (lru) places.used[k] += end - from;
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
      if (lru) places.used[place.length - 1] += units;
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
    if (this.makeList) return this.makeList;
    const { writes } = effects(this.graph);
    this.makeList = this.graph.value_tensor.map(() => []);
    this.moves.kind.forEach((kind, i) => {
      if (kind === COMPUTE) writes[this.moves.subject[i]].forEach((v) => this.makeList[v].push(i + 1));
    });
    return this.makeList;
  }

  /**
   * The last move that uses a value as it was made by move `made` (0: by any), before it is made again; 0 if none does.
   * @param {number} value
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
    if (!this.cut) {
      const computes = this.moves.kind.findIndex((kind) => kind !== COMPUTE);
      const order = Array.from(this.moves.subject).slice(0, computes < 0 ? this.length : computes);
      this.cut = cutPieces(touchesOf(this.graph, this.arena, order), this.arena.line);
    }
    return this.cut;
  }

  /**
   * The LRU stack of lines, each once; a steady loop begins with what the round before has left.
   * @param {number} step
   */
  lineStack(step, alive, sink) {
    const { graph, arena } = this;
    const { pieces, items } = this.cutPieces(),
      last = new Int32Array(items).fill(-1),
      round = pieces.length;
    // Where each storage is now: what is made again may be put elsewhere, and its old lines are then nobody's.
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
    const holder = new Map();
    graph.value_tensor.forEach((t, v) => {
      if (alive[v]) holder.set(graph.storage[t], v);
    });
    const stack = [];
    last.forEach((at, item) => {
      if (at >= 0) stack.push([at, item]);
    });
    stack.sort((a, b) => b[0] - a[0]);
    let above = 0;
    for (const [at] of stack) {
      const { touch, lines } = pieces[at % round],
        value = address.get(touch.root) === touch.address ? holder.get(touch.root) : undefined,
        units = lines * arena.line;
      sink(value === undefined ? null : value, above, units);
      above += units;
    }
  }

  /** Moves (1-based) that use each value: reads and copies, in order. */
  uses() {
    if (this.useList) return this.useList;
    const { graph, moves } = this,
      { reads, writes, destroys } = effects(graph);
    const uses = graph.value_tensor.map(() => []),
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
    this.useList = uses;
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
