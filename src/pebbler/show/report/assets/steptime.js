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
  /** @param {number} until */
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

/**
 * What memory is held for, from the bottom of the stack up.
 * @type {[purpose: string, words: string][]}
 */
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
/** @param {string} purpose */
const heldNumber = (purpose) => HELD_FOR.findIndex(([name]) => name === purpose);
const [KEPT, BACK, AGAIN, OTHER] = ["kept", "back", "again", "other"].map(heldNumber);

/**
 * Bytes of memory held for each purpose after every number of moves: (moves + 1) x purposes.
 * @param {Graph} graph
 * @param {Arena} arena
 * @param {Moves} moves
 */
function heldFor(graph, arena, moves) {
  const step = required(graph.step, "the names of a captured step"),
    { readers, writes } = effects(graph),
    width = HELD_FOR.length;
  const made = graph.value_tensor.map((t, v) => {
    const role = heldNumber(step.tensor_role[t]);
    if (role >= 0) return role;
    const maker = graph.value_maker[v];
    const kept =
      maker >= 0 && step.op_part[maker] === "forward" && readers[v].some((o) => step.op_part[o] !== "forward");
    return kept ? KEPT : OTHER;
  });
  const purpose = made.slice(),
    present = new Int32Array(graph.value_tensor.length),
    ran = new Uint8Array(graph.op_name.length);
  const sums = new Float64Array(width),
    rows = new Float64Array((moves.kind.length + 1) * width);
  const temporary = new Set([KEPT, OTHER]);
  play(graph, arena, moves, (i, held) => {
    // What this move brings in, before its bytes are added: by a second run, or from the host.
    if (i >= 0 && moves.kind[i] === COMPUTE) {
      const o = moves.subject[i];
      if (ran[o] || step.op_again[o]) for (const v of writes[o]) if (temporary.has(made[v])) purpose[v] = AGAIN;
      ran[o] = 1;
    } else if (i >= 0 && moves.kind[i] === COPY && moves.to[i] === 0) {
      for (const v of versionsOf(graph)[moves.subject[i]])
        if (temporary.has(made[v]) && held[v] & 1 && !(present[v] & 1)) purpose[v] = BACK;
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
 * @returns {TimeShare[]}
 */
function timeBy(graph, moves, keyOf) {
  /** @type {Map<string, TimeShare>} */
  const found = new Map(),
    ran = new Uint8Array(graph.op_name.length);
  moves.kind.forEach((kind, i) => {
    if (kind !== COMPUTE) return;
    const o = moves.subject[i],
      again = ran[o] === 1 || Boolean(graph.step && graph.step.op_again[o]),
      name = keyOf(o, again);
    const sum = entryOf(found, name, () => ({ name, time: 0, runs: 0, again: 0 }));
    sum.time += graph.op_cost[o];
    sum.runs++;
    if (again) sum.again += graph.op_cost[o];
    ran[o] = 1;
  });
  return [...found.values()].sort((a, b) => b.time - a.time || (a.name < b.name ? -1 : 1));
}

/** @type {[factor: number, name: string][]} */
const BYTES = [
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
];

/**
 * The factor and name of the unit in which so many bytes read best.
 * @param {number} bytes
 * @returns {[factor: number, name: string]}
 */
const byteScale = (bytes) => BYTES.find(([factor]) => bytes >= factor) || [1, "bytes"];

/**
 * Bytes as people write them.
 * @param {number} bytes
 */
function bytesText(bytes) {
  const [factor, name] = byteScale(bytes);
  return factor === 1 ? `${grouped(bytes)} bytes` : `${(bytes / factor).toFixed(2)} ${name}`;
}

/** A plan of a captured step: its moves in time, up to the first illegal one, and the memory held after each. */
class StepTimes {
  /**
   * @param {Graph} graph
   * @param {StepNames} step
   * @param {PlanData} plan
   */
  constructor(graph, step, plan) {
    this.graph = graph;
    this.step = step;
    this.plan = plan;
    this.unit = graph.energy_unit;
    this.arena = arenaOf(plan);
    this.moves = sliceMoves(plan, plan.judgement.legal ? plan.kind.length : Math.max(0, (plan.judgement.move || 1) - 1));
    this.time = timeMoves(graph, this.arena, this.moves, Boolean(plan.budget && plan.budget.overlap));
    this.held = heldFor(graph, this.arena, this.moves);
    const ran = new Set();
    /** Per move, whether its op has run before or computes what another has computed. */
    this.again = this.moves.kind.map((kind, i) => {
      const o = this.moves.subject[i],
        again = kind === COMPUTE && (ran.has(o) || step.op_again[o]);
      if (kind === COMPUTE) ran.add(o);
      return again;
    });
    /** The step without a limit, where it holds more then: drawn behind. */
    this.unlimited = unlimitedPeak(plan) > stepPeak(plan) ? plan.unlimited : null;
  }

  /** The most bytes that memory may hold besides the headroom; null without a budget. */
  get limit() {
    const { budget, capacity } = this.plan;
    if (capacity[0] < 2 ** 52) return capacity[0];
    return budget && budget.budget !== null ? budget.budget - budget.headroom : null;
  }

  /**
   * Bytes held after so many moves.
   * @param {number} done
   */
  heldAt(done) {
    let sum = 0;
    for (let k = 0; k < HELD_FOR.length; k++) sum += this.held[done * HELD_FOR.length + k];
    return sum;
  }

  /** @param {number} i */
  nameOf(i) {
    const { graph, moves, arena } = this,
      subject = moves.subject[i];
    if (moves.kind[i] === COMPUTE) return graph.op_name[subject];
    const words = moves.kind[i] === DROP ? `free in ${arena.names[moves.level[i]]}` : moves.level[i] === 0 ? "to the host" : "back from the host"; // prettier-ignore
    return `${graph.tensor_name[subject]} ${words}`;
  }

  /** Every move as a row of a table. */
  rows() {
    const { step, moves, time } = this,
      scale = energyScale(time.total, this.unit);
    return moves.kind.map((kind, i) => [
      i + 1,
      this.nameOf(i),
      kind === COMPUTE ? step.op_part[moves.subject[i]] : "",
      kind === COMPUTE ? step.op_line[moves.subject[i]] : "",
      (time.began[i] / scale.factor).toPrecision(6),
      (time.ended[i] / scale.factor).toPrecision(6),
      this.heldAt(i + 1),
    ]);
  }
}

/**
 * The times of a plan, null where it is of no captured step; made once.
 * @param {ReportData} data
 * @param {PlanData} plan
 */
function timesOf(data, plan) {
  const graph = data.graphs[plan.graph],
    { step } = graph;
  return step && once(plan, "step times", () => new StepTimes(graph, step, plan));
}
