// Two plans op by op, whatever was tiled or fused in either: the smallest groups of source ops that both have.

/**
 * The source ops behind an op of a graph.
 * @param {Graph} graph
 * @param {number} o
 */
const sourcesOf = (graph, o) => graph.op_sources[graph.op_origin[o]] || [graph.op_origin[o]];

/**
 * Per graph the name of each op's group: source ops that some op of either graph fuses are one group.
 * @param {Graph[]} graphs
 */
function sourceGroups(graphs) {
  /** @type {Map<string, string>} */
  const parent = new Map();
  /** @type {(name: string) => string} */
  const find = (name) => {
    const up = parent.get(name);
    return up === undefined || up === name ? name : find(up);
  };
  for (const graph of graphs)
    graph.op_name.forEach((_, o) => {
      const names = sourcesOf(graph, o);
      for (const name of names) if (!parent.has(name)) parent.set(name, name);
      for (const name of names.slice(1)) parent.set(find(name), find(names[0]));
    });
  /** @type {Map<string, string>} */
  const labels = new Map();
  for (const name of parent.keys()) {
    const root = find(name),
      before = labels.get(root);
    labels.set(root, before === undefined ? name : `${before} + ${name}`);
  }
  return graphs.map((graph) =>
    graph.op_name.map((_, o) => required(labels.get(find(sourcesOf(graph, o)[0])), "the group of an op")),
  );
}

/**
 * Energy per group and level of a plan; copies, which belong to no op, are a group of their own.
 * @param {Timeline} timeline
 * @param {string[]} groups
 */
function spentBySource(timeline, groups) {
  const { moves, judgement, arena } = timeline,
    levels = arena.names.length;
  /** @type {Map<string, number[]>} */
  const found = new Map();
  for (let i = 0; i < judgement.steps.length; i++) {
    const name = moves.kind[i] === COMPUTE ? groups[moves.subject[i]] : "copies";
    if (moves.kind[i] === DROP) continue;
    const sums = entryOf(found, name, () => zeros(levels));
    for (let k = 0; k < levels; k++) sums[k] += judgement.spent[i * levels + k];
  }
  return found;
}

/**
 * The timeline of a plan as it was given; made once.
 * @param {ReportData} data
 * @param {PlanData} plan
 */
function timelineOf(data, plan) {
  const { kind, subject, level, to } = plan;
  return once(plan, "timeline", () => new Timeline(data.graphs[plan.graph], plan, { kind, subject, level, to }));
}
