// What an order of ops costs where the machine places the values itself: the `recency` and `lru` rules,
// as in pebbler/kernels/recency.py, pebbler/touches.py and pebbler/kernels/lru_energy.py.


/**
 * Note 000's rule: a read is priced by the tensor's recency rank among the live ones, a write by its size.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {number[]} order
 */
function priceRecency(graph, arena, order) {
  const { reads, writes } = effects(graph);
  const size = graph.tensor_size,
    of = graph.value_tensor,
    levels = arena.capacity.length;
  const books = emptyBooks(graph, levels, order.length);
  const initial = new Uint8Array(size.length),
    lastRead = new Int32Array(size.length).fill(-1);
  of.forEach((t, v) => {
    if (graph.value_maker[v] < 0) initial[t] = 1;
  });
  order.forEach((o, s) =>
    reads[o].forEach((v) => {
      lastRead[of[v]] = s;
    }),
  );
  /** @type {number[]} */
  let live = [];
  const isLive = new Uint8Array(size.length),
    accessed = new Int32Array(size.length);
  for (let t = 0; t < size.length; t++)
    if (initial[t]) {
      live.push(t);
      isLive[t] = 1;
    }
  order.forEach((o, s) => {
    let energy = 0;
    /** @type {(at: number, t: number, amount: number) => void} */
    const pay = (at, t, amount) => {
      energy += amount;
      books.spent[s * levels + at] += amount;
      books.levels[at] += amount;
      books.tensors[t] += amount;
    };
    pay(0, of[writes[o].length ? writes[o][0] : reads[o][0]], graph.op_cost[o]);
    for (const v of reads[o]) {
      const t = of[v];
      let depth = size[t],
        seen = false;
      for (const u of live) {
        if (u === t) seen = true;
        else if (accessed[u] > accessed[t] || (accessed[u] === accessed[t] && !seen)) depth += size[u];
      }
      let at = 0,
        room = arena.capacity[0];
      while (depth > room && at < levels - 1) {
        at++;
        room += arena.capacity[at];
      }
      pay(at, t, size[t] * arena.read[at]);
      books.served[s * levels + at] += size[t];
      accessed[t] = s + 1;
    }
    for (const v of writes[o]) {
      const t = of[v];
      let at = 0;
      while (size[t] > arena.capacity[at] && at < levels - 1) at++;
      pay(at, t, size[t] * arena.write[at]);
      accessed[t] = s + 1;
      if (!isLive[t]) {
        isLive[t] = 1;
        live.push(t);
      }
    }
    const written = new Set(writes[o].map((v) => of[v]));
    live = live.filter((t) => {
      const stays = initial[t] || lastRead[t] > s || written.has(t);
      if (!stays) isLive[t] = 0;
      return stays;
    });
    books.ops[o] += energy;
    books.steps[s] = energy;
  });
  books.kinds[0] = books.steps.reduce((sum, part) => sum + part, 0);
  return books;
}

/**
 * What an order touches: runs {tensor, write, step, address (in lines), lines, units}, reads before writes.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {number[]} order
 */
function touchesOf(graph, arena, order) {
  const { reads, writes } = effects(graph);
  /** @type {Touching[]} */
  const touches = [];
  order.forEach((o, step) => {
    const readRoots = new Set(reads[o].map((v) => graph.storage[graph.value_tensor[v]]));
    /** @type {(v: number, write: boolean) => void} */
    const add = (v, write) => {
      const tensor = graph.value_tensor[v],
        root = graph.storage[tensor];
      touches.push({
        value: v,
        tensor,
        root,
        write,
        step,
        fresh: write && !readRoots.has(root),
        address: 0,
        last: false,
        lines: Math.ceil(graph.tensor_size[tensor] / arena.line),
        units: graph.tensor_size[tensor],
      });
    };
    reads[o].forEach((v) => add(v, false));
    writes[o].forEach((v) => add(v, true));
  });
  allocate(graph, arena, touches);
  return touches;
}

/**
 * Give every touch its first line: each storage its own, or first fit into what is free by then.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {Touching[]} touches
 */
function allocate(graph, arena, touches) {
  const room = graph.tensor_size.map((size) => Math.ceil(size / arena.line));
  const own = arena.allocator === "own",
    lasting = new Uint8Array(room.length);
  /** @type {Map<number, number>} */
  const block = new Map(); // the address of each storage that has one
  const startRoots = new Set();
  graph.value_tensor.forEach((t, v) => {
    if (graph.value_maker[v] < 0) startRoots.add(graph.storage[t]);
  });
  graph.tensor_kind.forEach((kind, t) => {
    if (kind !== "temp" || own) lasting[graph.storage[t]] = 1;
  });
  let top = 0;
  for (let root = 0; root < room.length; root++) {
    if (graph.storage[root] === root && (own || startRoots.has(root))) {
      block.set(root, top);
      top += room[root];
    }
  }
  /** @type {Map<number, boolean>} */
  const anew = new Map();
  for (let i = touches.length - 1; i >= 0; i--) {
    const touch = touches[i];
    touch.last = anew.get(touch.root) ?? true;
    anew.set(touch.root, touch.fresh);
  }
  const free = new FreeList(top);
  /** @type {Touching[]} */
  let waiting = [];
  touches.forEach((touch, i) => {
    touch.address = entryOf(block, touch.root, () => free.take(room[touch.root]));
    if (touch.last && !lasting[touch.root]) waiting.push(touch);
    if (i + 1 === touches.length || touches[i + 1].step !== touch.step) {
      // Only after the op has its results do the blocks that it used last become free.
      for (const { root, address } of waiting) {
        free.give(address, room[root]);
        block.delete(root);
      }
      waiting = [];
    }
  });
}

/** Free blocks of an endless memory, by address; neighbours are merged. */
class FreeList {
  /** @param {number} top */
  constructor(top) {
    this.top = top;
    /** @type {[address: number, length: number][]} */
    this.blocks = []; // sorted
  }

  /** @param {number} length */
  take(length) {
    for (let i = 0; i < this.blocks.length; i++) {
      const [address, room] = this.blocks[i];
      if (room < length) continue;
      if (room > length) this.blocks[i] = [address + length, room - length];
      else this.blocks.splice(i, 1);
      return address;
    }
    const tail = this.blocks[this.blocks.length - 1];
    if (tail && tail[0] + tail[1] === this.top) {
      this.blocks.pop();
      this.top = tail[0] + length;
      return tail[0];
    }
    this.top += length;
    return this.top - length;
  }

  /**
   * @param {number} address
   * @param {number} length
   */
  give(address, length) {
    if (length === 0) return;
    let i = this.blocks.findIndex((block) => block[0] >= address);
    if (i < 0) i = this.blocks.length;
    if (i < this.blocks.length && this.blocks[i][0] === address + length) length += this.blocks.splice(i, 1)[0][1];
    if (i > 0 && this.blocks[i - 1][0] + this.blocks[i - 1][1] === address) {
      i--;
      const before = this.blocks.splice(i, 1)[0];
      address = before[0];
      length += before[1];
    }
    this.blocks.splice(i, 0, [address, length]);
  }
}

/**
 * Cut touches so that any two pieces are equal or share no line: then all lines of a piece are at one depth.
 * @param {Touching[]} touches
 * @param {number} line
 */
function cutPieces(touches, line) {
  const bounds = [...new Set(touches.flatMap((t) => [t.address, t.address + t.lines]))].sort((a, b) => a - b);
  /** @type {Piece[]} */
  const pieces = [];
  touches.forEach((touch) => {
    for (let i = d3.bisectRight(bounds, touch.address) - 1; bounds[i] < touch.address + touch.lines; i++) {
      const lines = bounds[i + 1] - bounds[i],
        before = (bounds[i] - touch.address) * line;
      pieces.push({ item: i, lines, units: Math.min(touch.units - before, lines * line), touch });
    }
  });
  return { pieces, items: bounds.length };
}

/**
 * Depths in lines at which each piece is found (0: never touched before); in a steady loop those of the second round.
 * @param {Piece[]} pieces
 * @param {number} items
 * @param {boolean} steady
 */
function depthsOf(pieces, items, steady) {
  /** @type {number[]} */
  const first = [],
    seen = new Uint8Array(items);
  pieces.forEach((piece, i) => {
    if (!seen[piece.item]) {
      seen[piece.item] = 1;
      first.push(i);
    }
  });
  const path = steady ? [...pieces, ...first.map((i) => pieces[i])] : pieces;
  const tree = new Float64Array(path.length + 1),
    last = new Int32Array(items).fill(-1);
  /** @type {(at: number, amount: number) => void} */
  const add = (at, amount) => {
    for (let j = at + 1; j < tree.length; j += j & -j) tree[j] += amount;
  };
  /** @param {number} at */
  const below = (at) => {
    let sum = 0;
    for (let j = at; j > 0; j &= j - 1) sum += tree[j];
    return sum;
  };
  let total = 0;
  const depth = path.map((piece, i) => {
    const before = last[piece.item];
    let found = 0;
    if (before < 0) total += piece.lines;
    else {
      found = total - below(before);
      add(before, -piece.lines);
    }
    add(i, piece.lines);
    last[piece.item] = i;
    return found;
  });
  if (steady)
    first.forEach((i, k) => {
      depth[i] = depth[pieces.length + k];
    });
  return depth.slice(0, pieces.length);
}

/**
 * Hardware LRU caches with write-back; a write-back is charged to the write that made the line dirty.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {number[]} order
 */
function priceLru(graph, arena, order) {
  const levels = arena.capacity.length,
    bottom = levels - 1;
  const books = emptyBooks(graph, levels, order.length);
  const touches = touchesOf(graph, arena, order);
  const { pieces, items } = cutPieces(touches, arena.line);
  let sum = 0;
  const reach = arena.capacity.slice(0, bottom).map((room) => Math.floor((sum += room) / arena.line));
  const level = depthsOf(pieces, items, arena.steady).map((depth) => {
    const at = depth === 0 ? -1 : reach.findIndex((end) => depth <= end);
    return at < 0 ? bottom : at;
  });
  const units = Array.from({ length: 3 }, () => new Array(levels).fill(0)); // read, written, written back
  /** @type {(piece: Piece, at: number, amount: number) => void} */
  const pay = (piece, at, amount) => {
    books.spent[piece.touch.step * levels + at] += amount;
    books.tensors[piece.touch.tensor] += amount;
    books.ops[order[piece.touch.step]] += amount;
    books.steps[piece.touch.step] += amount;
  };
  const current = new Int32Array(items).fill(bottom),
    writer = new Int32Array(items).fill(-1);
  /** @param {boolean} count */
  const round = (count) =>
    pieces.forEach((piece, i) => {
      const { item, lines } = piece,
        at = level[i],
        moved = lines * arena.line;
      for (let k = current[item] + 1; count && k <= at; k++) {
        units[2][k] += moved;
        if (writer[item] >= 0) pay(pieces[writer[item]], k, moved * arena.write[k]);
      }
      if (piece.touch.write) {
        if (count) {
          units[1][0] += piece.units;
          pay(piece, 0, piece.units * arena.write[0]);
        }
        current[item] = 0;
        writer[item] = i;
      } else {
        if (count) {
          units[0][at] += piece.units;
          books.served[piece.touch.step * levels + at] += piece.units;
          pay(piece, at, piece.units * arena.read[at]);
        }
        current[item] = Math.max(current[item], at);
      }
    });
  if (arena.steady) round(false);
  round(true);
  if (!arena.steady) {
    // At the end of the window, what has sunk below its up-to-date copy is written back; a run can span levels.
    const done = new Uint8Array(items);
    let above = 0;
    for (let i = pieces.length - 1; i >= 0; i--) {
      const { item, lines } = pieces[i];
      if (done[item]) continue;
      done[item] = 1;
      for (let k = current[item] + 1; k < levels; k++) {
        const deeper = Math.min(lines, above + lines - reach[k - 1]);
        if (deeper <= 0) continue;
        units[2][k] += deeper * arena.line;
        if (writer[item] >= 0) pay(pieces[writer[item]], k, deeper * arena.line * arena.write[k]);
      }
      above += lines;
    }
  }
  const { reads, writes } = effects(graph);
  order.forEach((o, s) => {
    const cost = graph.op_cost[o];
    books.levels[0] += cost;
    books.spent[s * levels] += cost;
    books.ops[o] += cost;
    books.steps[s] += cost;
    books.tensors[graph.value_tensor[writes[o].length ? writes[o][0] : reads[o][0]]] += cost;
  });
  for (let k = 0; k < levels; k++) {
    books.levels[k] += units[0][k] * arena.read[k] + (units[1][k] + units[2][k]) * arena.write[k];
  }
  books.kinds[0] = books.steps.reduce((sum, part) => sum + part, 0);
  return books;
}
