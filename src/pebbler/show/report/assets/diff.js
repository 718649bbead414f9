// Two plans beside each other: which ops moved, and where the energy changed.

/**
 * What a plan runs, in the order of first runs: ops, or groups of source ops where the other plan has another graph.
 * @param {PlanData} plan
 * @param {string[]} names
 */
const firstRuns = (plan, names) => [
  ...new Set(plan.subject.filter((_, i) => plan.kind[i] === COMPUTE).map((o) => names[o])),
];

/**
 * The members of `places` that keep their order: one longest increasing run.
 * @param {number[]} places
 */
function longestRising(places) {
  /** @type {number[]} */
  const tails = [],
    before = new Int32Array(places.length).fill(-1);
  places.forEach((place, i) => {
    let low = 0,
      high = tails.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (places[tails[mid]] < place) low = mid + 1;
      else high = mid;
    }
    before[i] = low ? tails[low - 1] : -1;
    tails[low] = i;
  });
  const kept = new Set();
  for (let i = tails.length ? tails[tails.length - 1] : -1; i >= 0; i = before[i]) kept.add(i);
  return kept;
}

/**
 * @param {HTMLElement} root
 * @param {ReportData} data
 */
function showDiff(root, data) {
  if (data.plans.length < 2) {
    leaveOut("diff");
    return;
  }
  const holder = el("div", {});
  const options = () => data.plans.map((plan, i) => el("option", { value: i }, shown(plan.name, 40)));
  const left = el("select", { onchange: () => draw() }, ...options()),
    right = el("select", { onchange: () => draw() }, ...options());
  left.value = String(data.plans.length - 1);
  right.value = "0";
  const draw = () => {
    holder.replaceChildren();
    drawDiff(holder, data, data.plans[Number(left.value)], data.plans[Number(right.value)]);
  };
  root.append(el("div", { class: "row" }, el("label", {}, "From", left), el("label", {}, "to", right)), holder);
  draw();
}

/**
 * @param {HTMLElement} root
 * @param {ReportData} data
 * @param {PlanData} a
 * @param {PlanData} b
 */
function drawDiff(root, data, a, b) {
  const graphs = [data.graphs[a.graph], data.graphs[b.graph]],
    [unit, other] = graphs.map((graph) => graph.energy_unit),
    apart = rulesApart(data, a, b);
  if (a === b) {
    root.append(el("p", {}, "That is the same plan twice."));
    return;
  }
  const same = a.graph === b.graph,
    names = same ? graphs.map((graph) => graph.op_name) : sourceGroups(graphs),
    runs = [firstRuns(a, names[0]), firstRuns(b, names[1])],
    place = new Map(runs[1].map((name, i) => [name, i]));
  const common = runs[0].flatMap((name, i) => {
    const j = place.get(name);
    return j === undefined ? [] : [{ name, i, j, moved: false }];
  });
  const kept = longestRising(common.map((op) => op.j));
  common.forEach((op, k) => {
    op.moved = !kept.has(k);
  });
  const gone = runs[0].length - common.length,
    fresh = runs[1].length - common.length;
  const lone =
    gone || fresh
      ? `; ${grouped(gone)} only in ${shown(a.name, 40)}, ${grouped(fresh)} only in ${shown(b.name, 40)}`
      : "";
  /** @type {(plan: PlanData, kind: number) => number} */
  const count = (plan, kind) => plan.kind.filter((k) => k === kind).length;
  const priced = a.judgement.legal && b.judgement.legal;
  root.append(
    el(
      "p",
      {},
      `${same ? "" : "Counting source ops, whose tiles run where the first of them runs: "}` +
        `${plural(common.length - kept.size, "op")} moved, ${grouped(kept.size)} kept ${kept.size === 1 ? "its" : "their"} order${lone}. ` +
        (!priced
          ? `An illegal plan has no ${costWord(unit)} to compare.`
          : apart.length
            ? `${shown(b.name, 40)} costs ${energyText(b.judgement.energy, other)}, ` +
              `${shown(a.name, 40)} ${energyText(a.judgement.energy, unit)}; no ratio, because they are priced under ` +
              `different rules: ${apart.join("; ")}.`
            : `${shown(b.name, 40)} costs ${energyText(b.judgement.energy, unit)}, ${comparedTo(b.judgement.energy, a.judgement.energy)} ` +
              `${shown(a.name, 40)} (${energyText(a.judgement.energy, unit)}).`),
    ),
  );
  const totals = [a, b].map((plan, k) => [
    shown(plan.name, 40),
    grouped(plan.kind.length),
    grouped(count(plan, 0)),
    grouped(count(plan, 1)),
    grouped(count(plan, 2)),
    plan.judgement.legal ? energyText(plan.judgement.energy, graphs[k].energy_unit) : "illegal",
  ]);
  const word = unit === other ? costWord(unit) : "cost";
  root.append(tableOf("", ["plan", "moves", "computes", "copies", "drops", word], totals));
  if (priced && !apart.length) energyDiffs(root, data, a, b, names, unit);
  root.append(el("h3", {}, "Order of the ops"));
  if (kept.size === common.length && !gone && !fresh)
    root.append(
      el(
        "p",
        {},
        "Both run the ops in the same order, counting first runs: they differ in what they keep, copy and compute again.",
      ),
    );
  else if (common.length < 2) root.append(el("p", {}, "The two have hardly an op in common by name."));
  else root.append(orderLinks(a, b, runs, common));
}

/**
 * How a plan's costs come about, in words; plans with the same words can be compared.
 * @param {ReportData} data
 * @param {PlanData} plan
 */
function rulesOf(data, plan) {
  const { machine } = plan,
    management = machine.management || "explicit",
    prices = machine.level.map((level) => `${level.read}/${level.write}`).join(", ");
  return [
    {
      explicit: `memory that the plan manages, operands in ${machine.operands === "any" ? "any level" : "the fastest level"}`,
      lru: `hardware LRU caches (lines of ${machine.line || 1}, ${machine.allocator === "own" ? "own addresses" : "addresses used again"})`,
      recency: "note 000's recency ranks",
    }[management],
    plan.steady ? "one step of an endless loop" : "one step that starts cold",
    `reads/writes at ${prices} per ${data.graphs[plan.graph].unit}`,
    `counted in ${data.graphs[plan.graph].energy_unit}`,
  ];
}

/**
 * What differs between the rules that two plans are priced under, as "this one against that one"; empty if nothing does.
 * @param {ReportData} data
 * @param {PlanData} a
 * @param {PlanData} b
 */
function rulesApart(data, a, b) {
  const [one, other] = [rulesOf(data, a), rulesOf(data, b)];
  return one.flatMap((words, i) => (words === other[i] ? [] : [`${words} against ${other[i]}`]));
}

/**
 * Before and after, by source op and by level.
 * @param {HTMLElement} root
 * @param {ReportData} data
 * @param {PlanData} a
 * @param {PlanData} b
 * @param {string[][]} names
 * @param {string} unit
 */
function energyDiffs(root, data, a, b, names, unit) {
  const plans = [a, b],
    spent = plans.map((plan, k) => spentBySource(timelineOf(data, plan), names[k])),
    levels = [...new Set(plans.flatMap((plan) => plan.machine.level.map((level) => level.name)))],
    place = plans.map((plan) => levels.map((name) => plan.machine.level.findIndex((level) => level.name === name)));
  /** @type {(k: number, op: string) => number[]} */
  const split = (k, op) => place[k].map((at) => (at < 0 ? 0 : (spent[k].get(op) || [])[at] || 0));
  const rows = [...new Set([...spent[0].keys(), ...spent[1].keys()])].map((op) => {
    const [before, after] = [split(0, op), split(1, op)];
    return { op, parts: [before, after], change: d3.sum(after) - d3.sum(before) };
  });
  const changed = d3.sort(
      rows.filter((row) => Math.abs(row.change) > 1e-9),
      (row) => -Math.abs(row.change),
    ),
    top = changed.slice(0, 16),
    word = capital(costWord(unit));
  const parts = [0, 1].map((k) => levels.map((_, at) => d3.sum(rows, (row) => row.parts[k][at]))),
    all = { op: "in all", parts, change: d3.sum(parts[1]) - d3.sum(parts[0]) };
  const used = levels.map((_, at) => at).filter((at) => all.parts.some((part) => part[at] > 0));
  root.append(
    el("h3", {}, `${word} by ${a.graph === b.graph ? "op" : "source op"} and level`),
    el("div", { class: "legend" }, ...used.map((at) => swatch(levelColour(at), shown(levels[at], 24)))),
  );
  if (!changed.length) {
    root.append(el("p", {}, "Every op costs the same in both."));
    return;
  }
  root.append(
    figure(
      `${word} by op and level in ${shown(a.name, 40)} and ${shown(b.name, 40)}`,
      (width) => pairedBars(width, [all, ...top], plans, levels, unit),
      `Of every pair of bars the upper one is ${shown(a.name, 40)}, the lower one ${shown(b.name, 40)}.` +
        (changed.length > top.length ? ` The ${top.length} largest of ${grouped(changed.length)} changes.` : ""),
      asTable(["op", "level", `${shown(a.name, 30)} (${unit})`, `${shown(b.name, 30)} (${unit})`, "change"], () =>
        [all, ...changed].flatMap((row) =>
          levels
            .map((name, k) => ({ name, before: row.parts[0][k], after: row.parts[1][k] }))
            .filter(({ before, after }) => before || after)
            .map(({ name, before, after }) => [shown(row.op), shown(name, 30), grouped(before), grouped(after), grouped(after - before)]),
        ),
      ),
    ),
  );
}

/**
 * Rows of two bars each, before and after, split by level.
 * @param {number} width
 * @param {PairedRow[]} rows
 * @param {PlanData[]} plans
 * @param {string[]} levels
 * @param {string} unit
 */
function pairedBars(width, rows, plans, levels, unit) {
  const narrow = width < 560,
    pitch = narrow ? 58 : 40,
    left = narrow ? 4 : Math.min(260, width * 0.28),
    right = width - (narrow ? 4 : 130),
    height = rows.length * pitch + 8,
    most = d3.max(rows, (row) => d3.max(row.parts, (part) => d3.sum(part))) || 1,
    x = d3.scaleLinear([0, most], [left, right]),
    svg = d3
      .create("svg")
      .attr("width", width)
      .attr("height", height)
      .attr("viewBox", [0, 0, width, height])
      .attr("class", "paired");
  const bars = svg.append("g"),
    words = svg.append("g");
  rows.forEach((row, i) => {
    const y = i * pitch + (narrow ? 22 : 6),
      totals = row.parts.map((part) => d3.sum(part)),
      label = words
        .append("text")
        .attr("class", "name")
        .text(shown(row.op, Math.floor((narrow ? width * 0.6 : left) / 7.2)));
    label.append("title").text(shown(row.op));
    if (narrow) label.attr("x", left).attr("y", y - 6);
    else
      label
        .attr("x", left - 8)
        .attr("y", y + 19)
        .attr("text-anchor", "end");
    row.parts.forEach((part, k) => {
      let sum = 0;
      part.forEach((amount, at) => {
        if (!amount) return;
        bars
          .append("rect")
          .attr("x", x(sum))
          .attr("y", y + 14 * k)
          .attr("width", Math.max(0.5, x(sum + amount) - x(sum)))
          .attr("height", 12)
          .style("fill", levelColour(at))
          .style("opacity", 1)
          .append("title")
          .text(`${shown(plans[k].name, 40)}, ${shown(row.op)}, ${shown(levels[at], 30)}: ${energyText(amount, unit)}`);
        sum += amount;
      });
    });
    const figures = words
      .append("text")
      .attr("class", row.change < 0 ? "figures less" : row.change > 0 ? "figures more" : "figures")
      .text(`${row.change < 0 ? "−" : "+"}${energyText(Math.abs(row.change), unit)}`);
    if (narrow)
      figures
        .attr("x", right)
        .attr("y", y - 6)
        .attr("text-anchor", "end");
    else figures.attr("x", x(Math.max(...totals)) + 8).attr("y", y + 18);
  });
  return svg.node();
}

/**
 * Two columns of ops with a line for each; those that moved stand out. Long lists keep their labels for the moved ones.
 * @param {PlanData} a
 * @param {PlanData} b
 * @param {string[][]} runs
 * @param {CommonOp[]} common
 */
function orderLinks(a, b, runs, common) {
  const most = Math.max(runs[0].length, runs[1].length),
    dense = most > 80;
  return figure(
    `The order of ops in ${a.name} and in ${b.name}, linked`,
    (width) => {
      const pitch = dense ? Math.max(0.7, Math.min(8, 700 / most)) : 19,
        height = most * pitch + 44;
      const column = Math.min(230, width * 0.36),
        x = [column, width - column],
        y = (/** @type {number} */ i) => 34 + i * pitch;
      const svg = d3
        .create("svg")
        .attr("class", dense ? "links dense" : "links")
        .attr("width", width)
        .attr("height", height)
        .attr("viewBox", [0, 0, width, height]);
      [a, b].forEach((plan, k) =>
        svg
          .append("text")
          .attr("x", x[k])
          .attr("y", 14)
          .attr("text-anchor", k ? "start" : "end")
          .style("font-weight", 700)
          .text(shown(plan.name, 28)),
      );
      /** @param {CommonOp} op */
      const link = (op) =>
        `M${x[0] + 8},${y(op.i) - 4}C${(x[0] + x[1]) / 2},${y(op.i) - 4} ${(x[0] + x[1]) / 2},${y(op.j) - 4} ` +
        `${x[1] - 8},${y(op.j) - 4}`;
      const still = d3.sort(common, (op) => op.moved);
      svg
        .append("g")
        .selectAll("path")
        .data(still)
        .join("path")
        .attr("class", (op) => (op.moved ? "moved" : ""))
        .attr("d", link)
        .append("title")
        .text((op) => `${shown(op.name)}: ${op.i + 1} → ${op.j + 1}`);
      const moved = new Set(common.filter((op) => op.moved).map((op) => op.name));
      const chars = Math.floor(column / 7.2) - 4;
      runs.forEach((names, k) => {
        let last = -Infinity;
        names.forEach((name, i) => {
          if (dense && (!moved.has(name) || y(i) - last < 13)) return;
          last = y(i);
          const number = k ? `${i + 1} ${shown(name, chars)}` : `${shown(name, chars)} ${i + 1}`;
          svg
            .append("text")
            .attr("class", moved.has(name) ? "moved" : "")
            .attr("x", x[k])
            .attr("y", y(i))
            .attr("text-anchor", k ? "start" : "end")
            .text(number);
        });
      });
      return svg.node();
    },
    dense
      ? "Only ops that moved are named, as far as there is room; point at a line for its op."
      : "Numbers are the positions at which each op first runs.",
    asTable(["op", `in ${shown(a.name, 30)}`, `in ${shown(b.name, 30)}`, "moved"], () =>
      common.map((op) => [shown(op.name), op.i + 1, op.j + 1, op.moved ? "yes" : "no"]),
    ),
  );
}
