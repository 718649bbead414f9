// At a glance, for a captured PyTorch step: time or joules of one step, the budget, and what keeping it costs.

/** @type {Record<string, number>} */
const UNITS_OF = { ns: 1e9, pJ: 1e12 }; // costs in a graph, per second or joule

/**
 * What one step costs: its time with copies beside the computation where they run so, otherwise the referee's sum.
 * @param {ReportData} data
 * @param {PlanData} plan
 */
function stepCost(data, plan) {
  const graph = data.graphs[plan.graph];
  return graph.energy_unit === "ns" && plan.budget && plan.budget.overlap
    ? timeMoves(graph, arenaOf(plan), plan, true).total
    : plan.judgement.energy;
}

/**
 * The most bytes that a plan of a step holds, headroom included.
 * @param {PlanData} plan
 */
function stepPeak(plan) {
  const { budget, judgement } = plan;
  return Math.max(judgement.peak[0], budget ? budget.launch_peak : 0) + (budget ? budget.headroom : 0);
}

/**
 * The summary of a plan: that of a step where its figures are sound, otherwise the one that says what is wrong.
 * @param {HTMLElement} root
 * @param {ReportData} data
 * @param {PlanData} plan
 */
function showGlance(root, data, plan) {
  const sound = plan.judgement.legal && !plan.claims.void.length,
    { step } = data.graphs[plan.graph];
  if (sound && plan.budget && step) showStepSummary(root, data, plan, plan.budget, step);
  else showSummary(root, data, plan);
}

/**
 * The most bytes that any phase of a step holds, headroom included: with the plan, and without a limit.
 * @param {PlanData} plan
 */
function phasePeaks(plan) {
  const headroom = plan.budget ? plan.budget.headroom : 0,
    { peak, unlimited } = plan.earlier || { peak: 0, unlimited: 0 };
  return { planned: Math.max(stepPeak(plan), peak + headroom), free: Math.max(unlimitedPeak(plan), unlimited + headroom) };
}

/**
 * @param {HTMLElement} root
 * @param {ReportData} data
 * @param {PlanData} plan
 * @param {BudgetData} budget
 * @param {StepNames} step
 */
function showStepSummary(root, data, plan, budget, step) {
  const graph = data.graphs[plan.graph],
    unit = graph.energy_unit,
    cost = stepCost(data, plan),
    free = budget.unplanned * (UNITS_OF[unit] || 1);
  /** @param {number} amount */
  const text = (amount) => energyText(amount, unit);
  const proved = (plan.bound ?? 0) > 0,
    bound = (proved ? plan.bound : plan.claims.bound) ?? 0,
    gap = bound > 0 ? Math.max(0, cost / bound - 1) : null,
    whose = proved ? "" : ", by the search that made it";
  const proven = gap === null ? "" : gap < 1e-9 ? ` It is proven optimal${whose}.` : ` It is at most ${percent(gap)} above the lower bound${whose}.`; // prettier-ignore
  const verb = unit === "ns" ? "takes" : "costs",
    peaks = phasePeaks(plan),
    within = budget.budget === null ? "without a budget" : `within ${bytesText(budget.budget)}`;
  root.replaceChildren(
    el("p", { class: "headline", "data-test": "headline" }, headlineOf(data, plan, cost, free)),
    el(
      "p",
      { class: "sentence" },
      el("b", {}, shown(plan.name, 60)),
      ` runs a training step (${plural(graph.op_name.length, "op")}) ${within} on ${shown(budget.device, 30)}, with ${budget.kernels === "compiled" ? "fused kernels" : "its own kernels and the same bits"}. It holds at most `,
      el("b", {}, bytesText(peaks.planned)),
      `${peaks.planned > stepPeak(plan) ? ` (${bytesText(stepPeak(plan))} in the step that repeats)` : ""} instead of ${bytesText(peaks.free)}, and ${verb} `,
      el("b", {}, text(cost)),
      free > 0 ? `, ${comparedTo(cost, free)} without a limit (${text(free)}).` : ".",
      proven,
    ),
    el("dl", { class: "tiles" }, ...stepTiles(graph, plan, budget, step, { cost, free, bound, gap, text })),
  );
  root.dataset.cost = String(cost);
  root.dataset.peak = String(peaks.planned);
}

/**
 * The most bytes that the step holds without a limit, headroom included.
 * @param {PlanData} plan
 */
const unlimitedPeak = (plan) => ((plan.unlimited && d3.max(plan.unlimited.held)) || 0) + (plan.budget ? plan.budget.headroom : 0);

/**
 * What the plan does to memory and to the cost of a step, as `pebbler torch` says it.
 * @param {ReportData} data
 * @param {PlanData} plan
 * @param {number} cost
 * @param {number} free
 */
function headlineOf(data, plan, cost, free) {
  const { free: before, planned: after } = phasePeaks(plan),
    [factor, name] = byteScale(before),
    size = (/** @type {number} */ bytes) => (factor === 1 ? grouped(bytes) : (bytes / factor).toFixed(1));
  const more = free > 0 ? cost / free - 1 : 0,
    digits = Math.abs(more) >= 0.0995 ? 0 : 1,
    said = Math.abs(more) < 0.0005 ? "no more" : `${more > 0 ? "+" : "−"}${Math.abs(100 * more).toFixed(digits)} %`;
  const word = costWord(data.graphs[plan.graph].energy_unit);
  return `${after < before ? `${size(before)} → ` : ""}${size(after)} ${name}, ${said} ${word}`;
}

/**
 * @param {Graph} graph
 * @param {PlanData} plan
 * @param {BudgetData} budget
 * @param {StepNames} step
 * @param {{cost: number, free: number, bound: number, gap: number | null, text: (amount: number) => string}} figures
 */
function stepTiles(graph, plan, budget, step, { cost, free, bound, gap, text }) {
  const { judgement } = plan,
    unit = graph.energy_unit;
  const runs = plan.subject.filter((_, i) => plan.kind[i] === COMPUTE),
    seen = new Set(),
    again = runs.filter((o) => step.op_again[o] || seen.has(o) || !seen.add(o));
  const away =
    d3.sum(plan.kind, (kind, i) => (kind === COPY && plan.level[i] === 0 ? graph.tensor_size[plan.subject[i]] : 0)) +
    d3.sum(runs, (o) => step.op_sent[o]);
  const turns = budget.overlap && judgement.energy > cost;
  return [
    tile(
      capital(costWord(unit)),
      text(cost),
      turns
        ? `predicted, copies beside the computation; ${text(judgement.energy)} in turn, as the referee adds up`
        : "predicted, of the step that repeats",
    ),
    ...(free > 0 ? [tile("Without a limit", text(free), comparedTo(cost, free).replace(/ (than|as)$/, " here"))] : []),
    ...(gap === null ? [] : [tile("Lower bound", text(bound), gap < 1e-9 ? "reached" : `gap at most ${percent(gap)}`)]),
    tile(
      "Peak memory",
      bytesText(phasePeaks(plan).planned),
      `${budget.budget === null ? "no budget was given" : `of ${bytesText(budget.budget)}`}; ${bytesText(phasePeaks(plan).free)} without a limit`,
    ),
    ...(budget.held ? [tile("Held", bytesText(budget.held), "measured, the optimizer's step included")] : []),
    tile("Computed again", again.length ? text(d3.sum(again, (o) => graph.op_cost[o])) : "nothing", again.length ? plural(again.length, "run") : null), // prettier-ignore
    ...(away ? [tile("To the host", bytesText(away), "and back, in every step")] : []),
  ];
}
