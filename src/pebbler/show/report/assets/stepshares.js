// What each kernel, module and part of a captured step takes, and what smaller budgets cost.

const MOST_MODULES = 12; // rows of the table

/**
 * The block of a model that a module is in: the path to its first number, h.3 of h.3.mlp.fc; without one, its first two names.
 * @param {string} path
 */
function blockOf(path) {
  const names = path.split("."),
    at = names.findIndex((name) => /(^|\s)\d+$/.test(name));
  return names.slice(0, at < 0 ? 2 : at + 1).join(".");
}

/**
 * Per block of the model: bytes that its forward pass makes and leaves in memory for the backward pass, what it computes again,
 * and bytes that it sends to the host.
 * @param {Graph} graph
 * @param {Moves} moves
 */
function moduleRows(graph, moves) {
  const step = required(graph.step, "the names of a captured step"),
    { op_part: part, tensor_role: role } = step,
    { writes, readers } = effects(graph),
    ran = new Uint8Array(graph.op_name.length);
  /** @type {Map<string, ModuleRow>} */
  const rows = new Map();
  /** @param {number} o */
  const row = (o) => {
    const name = groupOf(step, o);
    return entryOf(rows, name, () => ({ name, kept: 0, again: 0, sent: 0 }));
  };
  // A value is kept if it is there when the backward pass begins: its last move before that is no drop.
  /** @type {Map<number, number>} */
  const made = new Map();
  let forward = true;
  moves.kind.forEach((kind, i) => {
    const subject = moves.subject[i];
    if (kind === COMPUTE) {
      if (forward && part[subject] === "backward") {
        forward = false;
        for (const [v, o] of made) if (readers[v].some((reader) => part[reader] !== "forward")) row(o).kept += graph.value_size[v];
      }
      if (ran[subject] || step.op_again[subject]) row(subject).again += graph.op_cost[subject];
      row(subject).sent += step.op_sent[subject];
      ran[subject] = 1;
      if (forward) for (const v of writes[subject]) if (!role[graph.value_tensor[v]]) made.set(v, subject);
    } else if (kind === DROP && moves.level[i] === 0) {
      for (const v of versionsOf(graph)[subject]) made.delete(v);
    } else if (kind === COPY && moves.level[i] === 0) {
      const maker = versionsOf(graph)[subject].map((v) => graph.value_maker[v]).find((o) => o >= 0);
      if (maker !== undefined) row(maker).sent += graph.tensor_size[subject];
    }
  }); // prettier-ignore
  const told = [...rows.values()].filter(({ kept, again, sent }) => kept || again || sent),
    all = summed("", told);
  /** @param {ModuleRow} r */
  const share = (r) => Math.max(r.kept / (all.kept || 1), r.again / (all.again || 1), r.sent / (all.sent || 1));
  return told.sort((a, b) => share(b) - share(a));
}

/**
 * The block of the model that an op belongs to, in words.
 * @param {StepNames} step
 * @param {number} o
 */
const groupOf = (step, o) =>
  blockOf(step.op_module[o]) || (step.op_part[o] === "optimizer" ? "optimizer" : "outside of modules");

/** @type {(name: string, rows: ModuleRow[]) => ModuleRow} */
const summed = (name, rows) => ({ name, kept: d3.sum(rows, (r) => r.kept), again: d3.sum(rows, (r) => r.again), sent: d3.sum(rows, (r) => r.sent) }); // prettier-ignore

/**
 * What each block of the model keeps for the backward pass, computes again and sends to the host.
 * @param {StepTimes} times
 */
function modulesTable({ graph, moves, unit }) {
  const found = moduleRows(graph, moves),
    rows = found.slice(0, found.length > MOST_MODULES ? MOST_MODULES - 1 : MOST_MODULES);
  if (found.length > rows.length)
    rows.push(summed(plural(found.length - rows.length, "other module"), found.slice(rows.length)));
  /** @param {ModuleRow} row */
  const cells = ({ name, kept, again, sent }) =>
    el(
      "tr",
      {},
      el("td", { class: "name" }, shown(name, 60)),
      el("td", { class: "n" }, kept ? bytesText(kept) : "–"),
      el("td", { class: "n" }, again ? energyText(again, unit) : "–"),
      el("td", { class: "n" }, sent ? bytesText(sent) : "–"),
    );
  const heads = ["module", "kept", "computed again", "sent"];
  const list = el(
    "table",
    { class: "modules" },
    el("thead", {}, el("tr", {}, ...heads.map((words, i) => el("th", { scope: "col", class: i ? "n" : "" }, words)))),
    el("tbody", {}, ...[summed("the whole step", found), ...rows].map(cells)),
  );
  return [
    el("h3", {}, "What each module keeps for the backward pass, computes again and sends to the host"),
    el("div", { class: "scroll", "data-test": "modules" }, list),
  ];
}

/**
 * Time by kernel, by module and by part of the step.
 * @param {Graph} graph
 * @param {StepNames} step
 * @param {Moves} moves
 */
function shareTables(graph, step, moves) {
  const unit = graph.energy_unit,
    total = d3.sum(moves.kind, (kind, i) => (kind === COMPUTE ? graph.op_cost[moves.subject[i]] : 0)) || 1;
  /** @type {[title: string, keyOf: (op: number, again: boolean) => string][]} */
  const kinds = [
    [`${capital(costWord(unit))} by kernel`, (o) => step.op_kernel[o]],
    ["By module", (o) => groupOf(step, o)],
    ["By part", (o, again) => (again ? "computed again" : step.op_part[o])],
  ];
  return kinds.map(([title, key]) => shareTable(title, timeBy(graph, moves, key), total, unit));
}

/**
 * Peak against time, and against joules: what quick plans for other budgets cost, and the plans of the page.
 * @param {ReportData} data
 */
function frontierCharts(data) {
  /** @type {Map<string, FrontierPoint[]>} */
  const units = new Map();
  for (const plan of data.plans) {
    const graph = data.graphs[plan.graph];
    if (!graph.step || !plan.judgement.legal || plan.baseline) continue;
    entryOf(units, graph.energy_unit, () => []).push({ plan, peak: stepPeak(plan), cost: stepCost(data, plan) });
  }
  const { curve } = data,
    known = curve ? data.graphs[curve.graph].energy_unit : "";
  return [...units]
    .filter(([unit, points]) => points.length > 1 || unit === known)
    .map(([unit, points]) => frontierChart(data, unit, points, curve && unit === known ? curve.points : []));
}

/**
 * The chart of some plans by peak and cost, over the curve of quick ones.
 * @param {ReportData} data
 * @param {string} unit
 * @param {FrontierPoint[]} points
 * @param {BudgetPoint[]} curve
 */
function frontierChart(data, unit, points, curve) {
  const word = costWord(unit),
    scale = energyScale(d3.max([...points, ...curve], (point) => point.cost) ?? 0, unit);
  const quick = curve.map(({ peak, cost }) => ({ mib: peak / 2 ** 20, scaled: cost / scale.factor }));
  const rows = d3.sort(
    points.map((point) => ({ ...point, mib: point.peak / 2 ** 20, scaled: point.cost / scale.factor })),
    (row) => row.mib,
  );
  // The line goes through what nothing beats in both.
  const known = d3.sort([...rows, ...quick], (row) => row.mib),
    best = known.filter((row) => !known.some((other) => other !== row && other.mib <= row.mib && other.scaled <= row.scaled));
  const at = /** @type {const} */ ({ x: "mib", y: "scaled" });
  /** @param {number} width */
  const draw = (width) =>
    Plot.plot({
      width,
      height: 260,
      marginLeft: 64,
      marginRight: 90,
      marginTop: 30,
      marginBottom: 42,
      grid: true,
      style: { fontSize: "12px", background: "none" },
      x: { label: "peak memory, headroom included (MiB) →", nice: true },
      y: { label: `↑ ${word} of one step (${scale.name})`, nice: true },
      marks: [
        Plot.line(best, { ...at, stroke: cssValue("--strong-line"), strokeDasharray: "3 3" }),
        Plot.dot(quick, { ...at, r: 3, fill: cssValue("--strong-line") }),
        Plot.dot(rows, { ...at, r: 5, fill: (row) => planColour(data.plans.indexOf(row.plan)) }),
        Plot.text(rows, {
          ...at,
          text: (row) => shown(row.plan.name, 24),
          dx: 8,
          dy: -9,
          textAnchor: "start",
          fill: cssValue("--ink"),
        }),
      ],
    });
  return el(
    "div",
    {},
    el("h3", {}, `What a smaller budget costs in ${word}`),
    figure(
      `Peak memory against ${word} of ${plural(rows.length, "plan")}`,
      draw,
      "Each large point is a plan of the page, by the referee's peak and the predicted cost." +
        (quick.length ? " Small ones are plans made quickly for other budgets; the rightmost is the step without a limit." : ""),
      asTable(["plan", "peak (MiB)", `${word} (${scale.name})`], () => [
        ...rows.map((row) => [row.plan.name, row.mib.toFixed(2), row.scaled.toPrecision(5)]),
        ...quick.map((row) => ["quickly made", row.mib.toFixed(2), row.scaled.toPrecision(5)]),
      ]),
    ),
  );
}

/**
 * The largest shares as a table with bars; the rest in one line.
 * @param {string} title
 * @param {TimeShare[]} sums
 * @param {number} total
 * @param {string} unit
 */
function shareTable(title, sums, total, unit) {
  const shownRows = sums.length > 10 ? sums.slice(0, 9) : sums.slice(),
    most = sums.length ? sums[0].time : 1,
    rest = sums.slice(shownRows.length);
  if (rest.length)
    shownRows.push({ name: plural(rest.length, "other"), time: d3.sum(rest, (sum) => sum.time), runs: 0, again: 0 });
  return el(
    "div",
    {},
    el("h4", {}, title),
    el(
      "table",
      {},
      el(
        "tbody",
        {},
        ...shownRows.map(({ name, time, runs, again }) =>
          el(
            "tr",
            { title: `${name}${runs ? `: ${plural(runs, "run")}` : ""}${again ? `, ${energyText(again, unit)} of it computed again` : ""}` },
            el("td", { class: "name" }, shown(name, 60)),
            el("td", {}, el("div", { class: "bar", style: { width: `${Math.min(100, (100 * time) / most)}%` } })),
            el("td", { class: "n" }, `${((100 * time) / total).toFixed(1)} %`),
          ),
        ),
      ),
    ),
  ); // prettier-ignore
}

