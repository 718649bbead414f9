// Two plans beside each other: which ops moved, and where the energy changed.

/** The ops of a plan in the order of their first run, by name. */
function firstRuns(data, plan) {
  const names = data.graphs[plan.graph].op_name;
  return [...new Set(plan.subject.filter((_, i) => plan.kind[i] === COMPUTE))].map((o) => names[o]);
}

/** The members of `places` that keep their order: one longest increasing run. */
function longestRising(places) {
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

function showDiff(root, data) {
  if (data.plans.length < 2) {
    root.append(
      el(
        "p",
        {},
        "There is only one plan here: it already is program order, or program order " +
          "does not fit. Give the command two plans to compare them.",
      ),
    );
    return;
  }
  const holder = el("div", {});
  const options = () => data.plans.map((plan, i) => el("option", { value: i }, shown(plan.name, 40)));
  const left = el("select", { onchange: () => draw() }, ...options()),
    right = el("select", { onchange: () => draw() }, ...options());
  left.value = data.plans.length - 1;
  right.value = 0;
  const draw = () => {
    holder.replaceChildren();
    drawDiff(holder, data, data.plans[Number(left.value)], data.plans[Number(right.value)]);
  };
  root.append(el("div", { class: "row" }, el("label", {}, "From", left), el("label", {}, "to", right)), holder);
  draw();
}

function drawDiff(root, data, a, b) {
  const graphs = [data.graphs[a.graph], data.graphs[b.graph]],
    [unit, other] = graphs.map((graph) => graph.energy_unit),
    apart = rulesApart(data, a, b);
  if (a === b) {
    root.append(el("p", {}, "That is the same plan twice."));
    return;
  }
  const runs = [firstRuns(data, a), firstRuns(data, b)],
    place = new Map(runs[1].map((name, i) => [name, i]));
  const common = runs[0].map((name, i) => ({ name, i, j: place.get(name) })).filter((op) => op.j !== undefined);
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
  const count = (plan, kind) => plan.kind.filter((k) => k === kind).length;
  const priced = a.judgement.legal && b.judgement.legal;
  root.append(
    el(
      "p",
      {},
      `${plural(common.length - kept.size, "op")} moved, ${grouped(kept.size)} kept their order${lone}. ` +
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
  if (priced && !apart.length) energyDiffs(root, data, a, b, graphs, unit);
  root.append(el("h3", {}, "Order of the ops"));
  if (kept.size === common.length && !gone && !fresh)
    root.append(
      el(
        "p",
        {},
        "Both run the ops in the same order, counting first runs: they differ in what they keep, copy and compute again.",
      ),
    );
  else if (common.length < 2)
    root.append(el("p", {}, "The two have hardly an op in common by name: one is a tiled or fused form of the other."));
  else root.append(orderLinks(a, b, runs, common));
}

/** How a plan's costs come about, in words; plans with the same words can be compared. */
function rulesOf(data, plan) {
  const { machine } = plan,
    management = machine.management || "explicit",
    prices = machine.level.map((level) => `${level.read}/${level.write}`).join(", ");
  return {
    by: {
      explicit: `memory that the plan manages, operands in ${machine.operands === "any" ? "any level" : "the fastest level"}`,
      lru: `hardware LRU caches (lines of ${machine.line || 1}, ${machine.allocator === "own" ? "own addresses" : "addresses used again"})`,
      recency: "note 000's recency ranks",
    }[management],
    loop: plan.steady ? "one step of an endless loop" : "one step that starts cold",
    prices: `reads/writes at ${prices} per ${data.graphs[plan.graph].unit}`,
    unit: `counted in ${data.graphs[plan.graph].energy_unit}`,
  };
}

/** What differs between the rules that two plans are priced under, as "this one against that one"; empty if nothing does. */
function rulesApart(data, a, b) {
  const [one, other] = [rulesOf(data, a), rulesOf(data, b)];
  return Object.keys(one)
    .filter((key) => one[key] !== other[key])
    .map((key) => `${one[key]} against ${other[key]}`);
}

function energyDiffs(root, data, a, b, graphs, unit) {
  const levels = [...new Set([...a.machine.level, ...b.machine.level].map((level) => level.name))];
  const at = (plan, name) => {
    const i = plan.machine.level.findIndex((level) => level.name === name);
    return i < 0 ? 0 : plan.judgement.levels[i];
  };
  const rows = levels.flatMap((name) =>
    [a, b].map((plan, k) => ({ level: name, plan: plan.name, k, energy: at(plan, name) })),
  );
  const { factor, name } = energyScale(
      d3.max(rows, (r) => r.energy),
      unit,
    ),
    numbers = [a, b].map((plan) => data.plans.indexOf(plan));
  root.append(
    el("h3", {}, `${capital(costWord(unit))} by level`),
    themed(() => planLegend([a, b].map((plan, k) => ({ plan, i: numbers[k] })))),
  );
  root.append(
    figure(
      `${capital(costWord(unit))} by level in both plans`,
      (width) =>
        Plot.plot({
          width,
          height: 60 + levels.length * 56,
          marginLeft: Math.min(130, width * 0.25),
          marginRight: 70,
          marginBottom: 40,
          marginTop: 6,
          style: PLOT_STYLE,
          x: { label: `${costWord(unit)} (${name}) →`, grid: true },
          fy: { domain: levels, label: null, tickFormat: (d) => shown(d, 16), padding: 0.2 },
          y: { axis: null, domain: [0, 1] },
          marks: [
            Plot.barX(rows, {
              fy: "level",
              y: "k",
              x: (r) => r.energy / factor,
              fill: (r) => planColour(numbers[r.k]),
            }),
            Plot.text(rows, {
              fy: "level",
              y: "k",
              x: (r) => r.energy / factor,
              text: (r) => energyText(r.energy, unit),
              textAnchor: "start",
              dx: 4,
              fill: "var(--ink)",
            }),
            Plot.ruleX([0]),
          ],
        }),
      null,
    ),
  );
  // Of two graphs, one is tiled: there the tiles of an op are compared with the op.
  const entries = (plan, k) =>
    a.graph === b.graph
      ? graphs[k].op_name.map((op, i) => [op, plan.judgement.ops[i]])
      : byOrigin(graphs[k].op_origin, plan.judgement.ops).map(({ name, amount }) => [name, amount]);
  const cost = [a, b].map((plan, k) => new Map(entries(plan, k)));
  const ops = [...new Set([...cost[0].keys(), ...cost[1].keys()])].map((op) => ({
    op,
    before: cost[0].get(op) || 0,
    after: cost[1].get(op) || 0,
  }));
  ops.forEach((row) => {
    row.change = row.after - row.before;
  });
  const changed = d3.sort(
      ops.filter((row) => Math.abs(row.change) > 1e-9),
      (row) => -Math.abs(row.change),
    ),
    top = changed.slice(0, 16);
  root.append(el("h3", {}, `${capital(costWord(unit))} by op${a.graph === b.graph ? "" : ", tiles added up"}`));
  const copies = b.judgement.kinds[1] - a.judgement.kinds[1];
  if (copies)
    root.append(
      el(
        "p",
        {},
        `Copies, which belong to no op: ${energyText(a.judgement.kinds[1], unit)} ` +
          `before, ${energyText(b.judgement.kinds[1], unit)} after.`,
      ),
    );
  if (!changed.length) {
    root.append(el("p", {}, "Every op costs the same in both."));
    return;
  }
  const scale = energyScale(
    d3.max(top, (row) => Math.abs(row.change)),
    unit,
  );
  const margin = (width) => Math.min(190, width * 0.38);
  root.append(
    figure(
      `Change of ${costWord(unit)} by op`,
      (width) =>
        Plot.plot({
          width,
          height: 56 + top.length * 24,
          marginLeft: margin(width),
          marginRight: 30,
          marginBottom: 40,
          marginTop: 6,
          style: PLOT_STYLE,
          x: { label: `change of ${costWord(unit)} (${scale.name}); left is cheaper`, grid: true, labelAnchor: "center" },
          y: {
            domain: top.map((row) => row.op),
            label: null,
            tickFormat: (d) => shown(d, Math.floor(margin(width) / 7.4)),
          },
          marks: [
            Plot.barX(top, {
              y: "op",
              x: (row) => row.change / scale.factor,
              fill: (row) => (row.change < 0 ? "#009e73" : "#d55e00"),
              title: (row) => `${shown(row.op)}: ${energyText(row.before, unit)} → ${energyText(row.after, unit)}`,
              tip: true,
            }),
            Plot.ruleX([0]),
          ],
        }),
      changed.length > top.length ? `The ${top.length} largest of ${grouped(changed.length)} changes.` : null,
      asTable(["op", `before (${unit})`, `after (${unit})`, "change"], () =>
        changed.map((row) => [
          shown(row.op),
          grouped(row.before),
          grouped(row.after),
          `${row.change > 0 ? "+" : ""}${grouped(row.change)}`,
        ]),
      ),
    ),
  );
}

/** Two columns of ops with a line for each; those that moved stand out. Long lists keep their labels for the moved ones. */
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
        y = (i) => 34 + i * pitch;
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
