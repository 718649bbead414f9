// What the player saves: a plan that `pebbler check` reads.

/**
 * The moves as a plan file; of the graph, what prices and rules do not need (axes, meta) is left out.
 * @param {Graph} graph
 * @param {Pick<PlanData, "machine" | "steady">} plan
 * @param {Pick<Timeline, "moves" | "arena" | "judgement">} timeline
 */
function planFile(graph, plan, timeline) {
  const { moves, arena } = timeline,
    explicit = arena.management === "explicit";
  // A captured step is shown under the names of its model, and written under those of its file.
  const { op: opNames, tensor: tensorNames } = graph.file_names || { op: graph.op_name, tensor: graph.tensor_name };
  /** @param {number[]} values */
  const names = (values) => values.map((v) => tensorNames[graph.value_tensor[v]]);
  const { reads, writes } = effects(graph);
  /** @type {Record<string, string[]>} */
  const start = {};
  graph.value_tensor.forEach((t, v) => {
    if (explicit && graph.value_maker[v] < 0)
      start[tensorNames[t]] = arena.names.filter((_, i) => (arena.start[v] >> i) & 1);
  });
  return {
    format: "pebbler-plan-1",
    graph: {
      format: "pebbler-graph-1",
      name: graph.name,
      unit: graph.unit,
      tensors: tensorNames.map((name, t) => ({
        name,
        size: graph.tensor_size[t],
        kind: graph.tensor_kind[t],
        ...(graph.tensor_overwrites[t] === null ? {} : { overwrites: graph.tensor_overwrites[t] }),
      })),
      ops: opNames.map((name, o) => ({
        name,
        reads: names(reads[o]),
        writes: names(writes[o]),
        cost: graph.op_cost[o],
        once: graph.op_once[o],
      })),
    },
    machine: plan.machine,
    start,
    steady: plan.steady,
    moves: moves.kind.map((kind, i) => {
      const level = arena.names[moves.level[i]];
      if (kind === COMPUTE)
        return ["compute", opNames[moves.subject[i]], ...(explicit && moves.level[i] ? [level] : [])];
      const name = tensorNames[moves.subject[i]];
      return kind === COPY ? ["copy", name, level, arena.names[moves.to[i]]] : ["drop", name, level];
    }),
    ...(timeline.judgement.legal ? { energy: timeline.judgement.energy } : {}),
    meta: { made_by: "reordered by hand in a pebbler report" },
  };
}
