// The cheapest way to the end of a red-blue game from any position: A* over positions, with proof.
// docs/exact.md ("Normal form") shows why drops may wait until room is needed, and copies until they serve. The tests hold this
// file against pebbler's exact solvers.

const MOST_BITS = 31; // ops, and values, of a game: positions are kept as bits of small integers


/**
 * Whether a game can be solved here: two levels, the slow one endless, computing in the fast one, and few ops and values.
 * @param {Graph} graph
 * @param {Arena} arena
 */
function isRedBlue(graph, arena) {
  return (
    arena.management === "explicit" &&
    arena.fastestOnly &&
    !arena.steady &&
    arena.capacity.length === 2 &&
    arena.capacity[1] > 2 ** 52 &&
    graph.op_name.length <= MOST_BITS &&
    graph.value_tensor.length <= MOST_BITS
  );
}

/** @param {number[]} items */
const bitsOf = (items) => items.reduce((bits, i) => bits | (1 << i), 0);

/**
 * The members of a set of bits, lowest first.
 * @param {number} bits
 */
function membersOf(bits) {
  /** @type {number[]} */
  const found = [];
  for (let rest = bits; rest; rest &= rest - 1) found.push(31 - Math.clz32(rest & -rest));
  return found;
}

/** The rules of one game as sets of bits. */
class BitGame {
  /**
   * @param {Graph} graph
   * @param {Arena} arena
   */
  constructor(graph, arena) {
    const { reads, writes, destroys, readers } = effects(graph);
    this.ops = graph.op_name.length;
    this.values = graph.value_tensor.length;
    this.all = this.ops === MOST_BITS ? 0x7fffffff : (1 << this.ops) - 1;
    this.reads = reads.map(bitsOf);
    this.writes = writes.map(bitsOf);
    this.destroys = destroys.map(bitsOf);
    this.readers = readers.map(bitsOf);
    this.maker = graph.value_maker;
    this.tensor = graph.value_tensor;
    this.size = graph.value_size;
    this.cost = graph.op_cost;
    this.survive = bitsOf(graph.value_survives.flatMap((survives, v) => (survives ? [v] : [])));
    this.capacity = arena.capacity[0];
    this.load = this.size.map((size) => size * (arena.read[1] + arena.write[0]));
    this.store = this.size.map((size) => size * (arena.read[0] + arena.write[1]));
    this.again = bitsOf(
      graph.op_name.flatMap((_, o) => (graph.op_once[o] || graph.op_in_place[o] ? [] : [o])),
    );
    // Ops that must have run before an op destroys what it destroys; ops after which an op's results are gone for good.
    this.before = destroys.map((values, o) => {
      const makers = values.filter((v) => this.maker[v] >= 0).map((v) => this.maker[v]);
      return (bitsOf(makers) | values.reduce((bits, v) => bits | this.readers[v], 0)) & ~(1 << o);
    });
    this.stale = writes.map((values) =>
      bitsOf(values.filter((v) => graph.value_destroyer[v] >= 0).map((v) => graph.value_destroyer[v])),
    );
    this.givenValues = bitsOf(this.maker.flatMap((maker, v) => (maker < 0 ? [v] : [])));
  }

  /** @param {number} bits */
  unitsIn(bits) {
    let units = 0;
    for (let rest = bits; rest; rest &= rest - 1) units += this.size[31 - Math.clz32(rest & -rest)];
    return units;
  }

  /**
   * @param {number} o
   * @param {number} ran
   */
  canRepeat(o, ran) {
    return (this.again >> o) & 1 && !(this.stale[o] & ran);
  }

  /**
   * Values that some plan from here may still read, or that must survive.
   * @param {number} ran
   */
  useful(ran) {
    let found = this.survive;
    for (let rest = this.all & ~ran; rest; rest &= rest - 1) found |= this.reads[31 - Math.clz32(rest & -rest)];
    // Ops come after what they read, so one pass from the last to the first sees every op's results before its reads.
    for (let o = this.ops - 1; o >= 0; o--) {
      if ((ran >> o) & 1 && this.writes[o] & found && this.canRepeat(o, ran)) found |= this.reads[o];
    }
    return found;
  }

  /**
   * No plan from here costs less: all that has not run, and bringing back what is missing; Infinity if that is impossible.
   * @param {number} ran
   * @param {number} red
   * @param {number} blue
   */
  atLeast(ran, red, blue) {
    let sum = 0,
      wanted = 0;
    for (let rest = this.all & ~ran; rest; rest &= rest - 1) {
      const o = 31 - Math.clz32(rest & -rest);
      sum += this.cost[o];
      wanted |= this.reads[o];
    }
    const survivors = this.survive & ~red & ~blue;
    let repeated = 0,
      loads = 0;
    /** @type {number[]} */
    const pending = [];
    /** @param {number} v */
    const ask = (v) => {
      if (this.maker[v] >= 0 && !((ran >> this.maker[v]) & 1)) return true;
      if ((blue >> v) & 1) {
        loads |= 1 << v;
        return true;
      }
      const o = this.maker[v];
      if (o < 0 || !this.canRepeat(o, ran)) return false;
      if (!((repeated >> o) & 1)) {
        repeated |= 1 << o;
        sum += this.cost[o];
        pending.push(o);
      }
      return true;
    };
    for (let rest = (wanted & ~red) | survivors; rest; rest &= rest - 1) {
      if (!ask(31 - Math.clz32(rest & -rest))) return Infinity;
    }
    for (let o = pending.pop(); o !== undefined; o = pending.pop()) {
      for (let rest = this.reads[o] & ~red; rest; rest &= rest - 1) {
        if (!ask(31 - Math.clz32(rest & -rest))) return Infinity;
      }
    }
    return sum + this.loadsAtLeast(loads, repeated, ran);
  }

  /**
   * What comes back by a load, or by running its maker again: per maker, the cheaper of the two.
   * @param {number} loads
   * @param {number} repeated
   * @param {number} ran
   */
  loadsAtLeast(loads, repeated, ran) {
    let sum = 0;
    while (loads) {
      const v = 31 - Math.clz32(loads & -loads),
        o = this.maker[v];
      if (o < 0 || !this.canRepeat(o, ran)) {
        sum += this.load[v];
        loads &= loads - 1;
        continue;
      }
      let together = 0;
      const mine = loads & this.writes[o];
      for (const w of membersOf(mine)) together += this.load[w];
      if (!((repeated >> o) & 1)) sum += Math.min(together, this.cost[o]);
      loads &= ~mine;
    }
    return sum;
  }

  /**
   * The smallest sets among `from` whose values free at least `units`.
   * @param {number} from
   * @param {number} units
   */
  smallestSets(from, units) {
    const items = membersOf(from).filter((v) => this.size[v] > 0);
    /** @type {number[]} */
    const found = [];
    /**
     * @param {number} at
     * @param {number} chosen
     * @param {number} freed
     */
    const choose = (at, chosen, freed) => {
      if (freed >= units) {
        if (membersOf(chosen).every((v) => freed - this.size[v] < units)) found.push(chosen);
        return;
      }
      for (let i = at; i < items.length; i++) choose(i + 1, chosen | (1 << items[i]), freed + this.size[items[i]]);
    };
    choose(0, 0, 0);
    return found;
  }
}

/** Positions met so far, each with the cheapest way there; an open-addressing table finds them. */
class PositionTable {
  constructor() {
    this.count = 0;
    this.room = 1 << 12;
    this.columns = {
      ran: new Int32Array(this.room),
      red: new Int32Array(this.room),
      blue: new Int32Array(this.room),
      parent: new Int32Array(this.room),
      what: new Int32Array(this.room),
      dropped: new Int32Array(this.room),
      stored: new Int32Array(this.room),
      spent: new Float64Array(this.room),
      least: new Float64Array(this.room),
    };
    this.slots = new Int32Array(4 * this.room).fill(-1);
  }

  /**
   * @param {number} ran
   * @param {number} red
   * @param {number} blue
   */
  slotOf(ran, red, blue) {
    const { columns, slots } = this,
      mask = slots.length - 1;
    let hash = Math.imul(ran, 0x9e3779b1) ^ Math.imul(red, 0x85ebca6b) ^ Math.imul(blue, 0xc2b2ae35);
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
    let at = (hash ^ (hash >>> 13)) & mask;
    while (slots[at] >= 0) {
      const i = slots[at];
      if (columns.ran[i] === ran && columns.red[i] === red && columns.blue[i] === blue) break;
      at = (at + 1) & mask;
    }
    return at;
  }

  /**
   * The number of a position; new ones have been spent nothing on yet: Infinity.
   * @param {number} ran
   * @param {number} red
   * @param {number} blue
   */
  find(ran, red, blue) {
    let slot = this.slotOf(ran, red, blue);
    if (this.slots[slot] >= 0) return this.slots[slot];
    if (this.count === this.room) {
      this.grow();
      slot = this.slotOf(ran, red, blue);
    }
    const i = this.count++,
      { columns } = this;
    this.slots[slot] = i;
    columns.ran[i] = ran;
    columns.red[i] = red;
    columns.blue[i] = blue;
    columns.spent[i] = Infinity;
    columns.least[i] = -1;
    return i;
  }

  grow() {
    this.room *= 2;
    /** @param {Int32Array} column */
    const larger = (column) => {
      const found = new Int32Array(this.room);
      found.set(column);
      return found;
    };
    const { ran, red, blue, parent, what, dropped, stored, spent, least } = this.columns;
    this.columns = {
      ran: larger(ran),
      red: larger(red),
      blue: larger(blue),
      parent: larger(parent),
      what: larger(what),
      dropped: larger(dropped),
      stored: larger(stored),
      spent: new Float64Array(this.room),
      least: new Float64Array(this.room),
    };
    this.columns.spent.set(spent);
    this.columns.least.set(least);
    this.slots = new Int32Array(4 * this.room).fill(-1);
    for (let i = 0; i < this.count; i++) this.slots[this.slotOf(ran[i], red[i], blue[i])] = i;
  }
}

/** A binary heap of [key, item], the smallest key first; of equal keys, the one that comes last. */
class SmallestFirst {
  constructor() {
    /** @type {number[]} */
    this.keys = [];
    /** @type {number[]} */
    this.items = [];
  }

  /**
   * @param {number} key
   * @param {number} item
   */
  push(key, item) {
    const { keys, items } = this;
    let at = keys.length;
    keys.push(key);
    items.push(item);
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (keys[up] < key) break;
      keys[at] = keys[up];
      items[at] = items[up];
      at = up;
    }
    keys[at] = key;
    items[at] = item;
  }

  /** The first [key, item], taken out; null where there is none. */
  pop() {
    const { keys, items } = this;
    const top = [keys[0], items[0]],
      key = keys.pop(),
      item = items.pop(),
      count = keys.length;
    if (key === undefined || item === undefined) return null;
    for (let at = 0; count > 0; ) {
      let down = 2 * at + 1;
      if (down + 1 < count && keys[down + 1] < keys[down]) down++;
      if (down >= count || keys[down] >= key) {
        keys[at] = key;
        items[at] = item;
        break;
      }
      keys[at] = keys[down];
      items[at] = items[down];
      at = down;
    }
    return top;
  }
}

/** The search for the cheapest way to the end; `run` works for a while, so that the page stays alive. */
class OptimumSearch {
  /**
   * @param {Graph} graph
   * @param {Arena} arena
   * @param {Position} position
   */
  constructor(graph, arena, position, mostPositions = 400_000) {
    this.game = new BitGame(graph, arena);
    this.mostPositions = mostPositions;
    this.table = new PositionTable();
    this.open = new SmallestFirst();
    this.position = position;
    /** @type {{cost: number, moves: Move[]} | "too large" | "no way" | null} */
    this.result = null; // null: still searching
    const { ran, red, blue } = position;
    this.reach(-1, ran, red, blue, 0, 0, 0, 0);
  }

  /** Work on until there is a result or `positions` have been looked at; returns whether there is one. */
  run(positions = Infinity) {
    const { game, table, open } = this;
    while (this.result === null && positions-- > 0) {
      const first = open.pop();
      if (!first) {
        this.result = "no way";
        break;
      }
      const [key, i] = first,
        { columns } = table;
      if (key > columns.spent[i] + columns.least[i] + 1e-12 * Math.abs(key)) continue; // a cheaper way was found since
      if (columns.ran[i] === game.all && !(game.survive & ~columns.red[i] & ~columns.blue[i])) {
        this.result = { cost: columns.spent[i], moves: this.retrace(i) };
      } else if (table.count > this.mostPositions) this.result = "too large";
      else this.expand(i);
    }
    return this.result !== null;
  }

  /** @param {number} i */
  expand(i) {
    const { game, table } = this,
      ran = table.columns.ran[i],
      red = table.columns.red[i],
      blue = table.columns.blue[i];
    const useful = game.useful(ran);
    let loadable = 0;
    for (let o = 0; o < game.ops; o++) {
      const first = !((ran >> o) & 1);
      if (game.before[o] & ~ran && first) continue;
      if (!first && (!game.canRepeat(o, ran) || !(game.writes[o] & useful & ~red))) continue;
      const missing = game.reads[o] & ~red;
      if (missing & ~blue) continue;
      if (missing) loadable |= missing;
      else this.compute(i, o, first);
    }
    for (const v of membersOf(loadable)) {
      const units = game.unitsIn(red) + game.size[v] - game.capacity;
      this.makeRoom(i, red, units, (dropped, stored, price) =>
        this.reach(i, ran, (red & ~dropped) | (1 << v), blue | stored, game.ops + v, dropped, stored, price + game.load[v]),
      );
    }
  }

  /**
   * @param {number} i
   * @param {number} o
   * @param {boolean} first
   */
  compute(i, o, first) {
    const { game, table } = this,
      { ran, red, blue } = { ran: table.columns.ran[i], red: table.columns.red[i], blue: table.columns.blue[i] };
    const gone = first ? game.destroys[o] : 0;
    const units = game.unitsIn((red & ~gone) | game.writes[o]) - game.capacity;
    this.makeRoom(i, red & ~gone & ~game.writes[o] & ~game.reads[o], units, (dropped, stored, price) =>
      this.reach(
        i,
        ran | (1 << o),
        (red & ~dropped & ~gone) | game.writes[o],
        (blue | stored) & ~gone,
        o,
        dropped,
        stored,
        price + game.cost[o],
      ),
    );
  }

  /**
   * Every smallest way to free `units` of the fast level: what is dropped, and which of it is stored first.
   * @param {number} i
   * @param {number} from
   * @param {number} units
   * @param {(dropped: number, stored: number, price: number) => void} act
   */
  makeRoom(i, from, units, act) {
    const { game } = this,
      blue = this.table.columns.blue[i];
    if (units <= 0) {
      act(0, 0, 0);
      return;
    }
    for (const dropped of game.smallestSets(from, units)) {
      const unsaved = dropped & ~blue;
      for (let stored = unsaved; ; stored = (stored - 1) & unsaved) {
        let price = 0;
        for (const v of membersOf(stored)) price += game.store[v];
        act(dropped, stored, price);
        if (!stored) break;
      }
    }
  }

  /**
   * Note that a position can be had for so much, coming from another by an op or a load.
   * @param {number} parent
   * @param {number} ran
   * @param {number} red
   * @param {number} blue
   * @param {number} what
   * @param {number} dropped
   * @param {number} stored
   * @param {number} price
   */
  reach(parent, ran, red, blue, what, dropped, stored, price) {
    const { game, table } = this,
      useful = game.useful(ran);
    const i = table.find(ran, red & useful, blue & useful),
      { columns } = table;
    const spent = parent < 0 ? 0 : columns.spent[parent] + price;
    if (spent >= columns.spent[i] - 1e-12 * Math.abs(spent)) return;
    if (columns.least[i] < 0) columns.least[i] = game.atLeast(ran, red & useful, blue & useful);
    if (columns.least[i] === Infinity) return;
    columns.spent[i] = spent;
    columns.parent[i] = parent;
    columns.what[i] = what;
    columns.dropped[i] = dropped;
    columns.stored[i] = stored;
    this.open.push(spent + columns.least[i], i);
  }

  /**
   * The moves of the way to a position. What nothing needs any more is dropped only where it is in the way.
   * @param {number} goal
   */
  retrace(goal) {
    const { game, table } = this,
      { columns } = table;
    /** @type {number[]} */
    const path = [];
    /** @type {Move[]} */
    const moves = [];
    for (let i = goal; columns.parent[i] >= 0; i = columns.parent[i]) path.push(i);
    let { ran, red } = this.position;
    /** @type {(kind: number, subject: number, level: number, to?: number) => number} */
    const move = (kind, subject, level, to = NONE) => moves.push({ kind, subject, level, to });
    /** @param {number} v */
    const drop = (v) => {
      move(DROP, game.tensor[v], 0);
      red &= ~(1 << v);
    };
    for (const i of path.reverse()) {
      const what = columns.what[i],
        from = columns.red[columns.parent[i]],
        computes = what < game.ops;
      for (const v of membersOf(columns.stored[i])) move(COPY, game.tensor[v], 0, 1);
      for (const v of membersOf(columns.dropped[i])) drop(v);
      const gone = computes && !((ran >> what) & 1) ? game.destroys[what] : 0,
        put = computes ? game.writes[what] : 1 << (what - game.ops);
      for (const v of membersOf(red & ~from & ~put)) {
        if (game.unitsIn((red & ~gone) | put) <= game.capacity) break;
        if (game.size[v] > 0) drop(v);
      }
      if (computes) move(COMPUTE, what, 0);
      else move(COPY, game.tensor[what - game.ops], 1, 0);
      red = (red & ~gone) | put;
      if (computes) ran |= 1 << what;
    }
    return moves;
  }
}
