// Two plans op by op, whatever was tiled or fused in either: the smallest groups of source ops that both have.

/** The source ops behind each op of a graph. */
const sourcesOf = (graph, o) => graph.op_sources[graph.op_origin[o]] || [graph.op_origin[o]];

/** Per graph the group of each op, and the groups' names: source ops that some op of either graph fuses are one group. */
function sourceGroups(graphs) {
  const parent = new Map();
  const find = (name) => {
    let root = name;
    while (parent.get(root) !== root) root = parent.get(root);
    return root;
  };
  for (const graph of graphs)
    graph.op_name.forEach((_, o) => {
      const names = sourcesOf(graph, o);
      for (const name of names) if (!parent.has(name)) parent.set(name, name);
      for (const name of names.slice(1)) parent.set(find(name), find(names[0]));
    });
  const members = new Map();
  for (const name of parent.keys()) members.set(find(name), [...(members.get(find(name)) || []), name]);
  const label = new Map([...members].map(([root, names]) => [root, names.join(" + ")]));
  return graphs.map((graph) => graph.op_name.map((_, o) => label.get(find(sourcesOf(graph, o)[0]))));
}

/**
 * Energy per group and level of a plan; copies, which belong to no op, are a group of their own.
 * @param {Timeline} timeline
 */
function spentBySource(timeline, groups) {
  const { moves, judgement, arena } = timeline,
    levels = arena.names.length,
    found = new Map();
  for (let i = 0; i < judgement.steps.length; i++) {
    const name = moves.kind[i] === COMPUTE ? groups[moves.subject[i]] : "copies";
    if (moves.kind[i] === DROP) continue;
    if (!found.has(name))
      found.set(
        name,
        arena.names.map(() => 0),
      );
    const sums = found.get(name);
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
  if (!timelineOf.known.has(plan)) {
    const { kind, subject, level, to } = plan;
    timelineOf.known.set(plan, new Timeline(data.graphs[plan.graph], plan, { kind, subject, level, to }));
  }
  return timelineOf.known.get(plan);
}
timelineOf.known = new Map();
