// A captured PyTorch step in time: when each move of its plan runs, what is held meanwhile, and what each kernel takes.
// The times are those of pebbler/run/torch/plan/kernels/move_timing.py; a test holds the two together.

const ENGINES = ["computation", "copies to the host", "copies back"];

/**
 * Call ops and tensors by the model's names; what the file calls them stays in `graph.file_names`.
 * @param {Graph} graph
 */
function useStepNames(graph) {
  if (!graph.step || graph.file_names) return;
  const { op_label: ops, tensor_label: tensors } = graph.step;
  graph.file_names = { op: graph.op_name, tensor: graph.tensor_name };
  graph.op_origin = graph.op_origin.map((name, o) => (name === graph.op_name[o] ? ops[o] : name));
  graph.tensor_origin = graph.tensor_origin.map((name, t) => (name === graph.tensor_name[t] ? tensors[t] : name));
  graph.op_name = ops;
  graph.tensor_name = tensors;
}

/**
 * When every move begins and ends, on which engine (-1: a drop takes no time), and the clock of the computation after it.
 * Memory is free again only when what was copied out of it is out, and an op waits for what it reads to be in.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {Moves} moves
 * @param {boolean} overlap
 */
function timeMoves(graph, arena, moves, overlap) {
  const { reads, writes } = effects(graph),
    { storage, tensor_size: size, value_tensor: tensorOf } = graph,
    host = arena.names.length - 1;
  const saved = new Float64Array(size.length),
    loaded = new Float64Array(size.length),
    count = moves.kind.length;
  const found = {
    began: new Float64Array(count),
    ended: new Float64Array(count),
    clock: new Float64Array(count + 1),
    engine: new Int8Array(count).fill(-1),
    waited: 0,
    total: 0,
  };
  const free = [0, 0, 0];
  let now = 0;
  const wait = (until) => {
    if (until > now) {
      found.waited += until - now;
      now = until;
    }
  };
  for (let i = 0; i < count; i++) {
    const s = moves.subject[i];
    if (moves.kind[i] === COMPUTE) {
      for (const v of reads[s]) wait(loaded[storage[tensorOf[v]]]);
      for (const v of writes[s]) wait(Math.max(saved[storage[tensorOf[v]]], loaded[storage[tensorOf[v]]]));
      found.began[i] = now;
      now += graph.op_cost[s];
      found.ended[i] = now;
      found.engine[i] = 0;
    } else if (moves.kind[i] === COPY) {
      const home = storage[s],
        out = moves.level[i] === 0,
        engine = out ? 1 : 2;
      const from = Math.max(now, free[engine], out ? loaded[home] : saved[home]);
      const ended = from + size[s] * (out ? arena.write[host] : arena.read[host]);
      free[engine] = ended;
      (out ? saved : loaded)[home] = ended;
      found.engine[i] = engine;
      found.began[i] = from;
      found.ended[i] = ended;
      if (!overlap) wait(ended);
    } else {
      if (moves.level[i] === 0) wait(Math.max(saved[storage[s]], loaded[storage[s]]));
      found.began[i] = found.ended[i] = now;
    }
    found.clock[i + 1] = now;
  }
  found.total = Math.max(now, free[1], free[2]);
  return found;
}

// What memory is held for, from the bottom of the stack up.
const HELD_FOR = [
  ["parameter", "parameters"],
  ["state", "optimizer state"],
  ["batch", "batch"],
  ["kept", "kept for the backward pass"],
  ["back", "back from the host"],
  ["again", "computed again"],
  ["other", "gradients and temporaries"],
  ["scratch", "kernels' scratch"],
];
const HELD_NUMBER = new Map(HELD_FOR.map(([name], i) => [name, i]));

/**
 * Bytes of memory held for each purpose after every number of moves: (moves + 1) x purposes.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {Moves} moves
 */
function heldFor(graph, arena, moves) {
  const { step } = graph,
    { readers, writes } = effects(graph),
    width = HELD_FOR.length;
  const made = graph.value_tensor.map((t, v) => {
    const role = step.tensor_role[t];
    if (HELD_NUMBER.has(role)) return HELD_NUMBER.get(role);
    const maker = graph.value_maker[v];
    const kept =
      maker >= 0 && step.op_part[maker] === "forward" && readers[v].some((o) => step.op_part[o] !== "forward");
    return HELD_NUMBER.get(kept ? "kept" : "other");
  });
  const purpose = made.slice(),
    present = new Int32Array(graph.value_tensor.length),
    ran = new Uint8Array(graph.op_name.length);
  const sums = new Float64Array(width),
    rows = new Float64Array((moves.kind.length + 1) * width);
  const temporary = new Set([HELD_NUMBER.get("kept"), HELD_NUMBER.get("other")]);
  play(graph, arena, moves, (i, held) => {
    // What this move brings in, before its bytes are added: by a second run, or from the host.
    if (i >= 0 && moves.kind[i] === COMPUTE) {
      const o = moves.subject[i];
      if (ran[o] || step.op_again[o]) for (const v of writes[o]) if (temporary.has(made[v])) purpose[v] = HELD_NUMBER.get("again");
      ran[o] = 1;
    } else if (i >= 0 && moves.kind[i] === COPY && moves.to[i] === 0) {
      for (const v of versionsOf(graph)[moves.subject[i]])
        if (temporary.has(made[v]) && held[v] & 1 && !(present[v] & 1)) purpose[v] = HELD_NUMBER.get("back");
    }
    for (const v of touchedBy(graph, moves, i)) {
      if ((held[v] ^ present[v]) & 1) sums[purpose[v]] += held[v] & 1 ? graph.value_size[v] : -graph.value_size[v];
      present[v] = held[v];
    }
    rows.set(sums, (i + 1) * width);
  });
  return rows;
}


/**
 * Time by a key of each run, largest first.
 * @param {Graph} graph
 * @param {Moves} moves
 * @param {(op: number, again: boolean) => string} keyOf
 * @returns {{name: string, time: number, runs: number, again: number}[]}
 */
function timeBy(graph, moves, keyOf) {
  const found = new Map(),
    ran = new Uint8Array(graph.op_name.length);
  moves.kind.forEach((kind, i) => {
    if (kind !== COMPUTE) return;
    const o = moves.subject[i],
      again = ran[o] === 1 || Boolean(graph.step && graph.step.op_again[o]),
      name = keyOf(o, again);
    if (!found.has(name)) found.set(name, { name, time: 0, runs: 0, again: 0 });
    const sum = found.get(name);
    sum.time += graph.op_cost[o];
    sum.runs++;
    if (again) sum.again += graph.op_cost[o];
    ran[o] = 1;
  });
  return [...found.values()].sort((a, b) => b.time - a.time || (a.name < b.name ? -1 : 1));
}

const BYTES = /** @type {[number, string][]} */ ([
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
]);

/** The factor and name of the unit in which so many bytes read best. */
const byteScale = (bytes) => BYTES.find(([factor]) => bytes >= factor) || /** @type {[number, string]} */ ([1, "bytes"]);

/** Bytes as people write them. */
function bytesText(bytes) {
  const [factor, name] = byteScale(bytes);
  return factor === 1 ? `${grouped(bytes)} bytes` : `${(bytes / factor).toFixed(2)} ${name}`;
}
