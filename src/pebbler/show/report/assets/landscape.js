// The landscape: where the plans stand among all orders, and what more or less fast memory would do.

/**
 * @param {HTMLElement} root
 * @param {ReportData} data
 */
function showLandscape(root, data) {
  const found = data.landscape,
    plan = data.plans[0],
    graph = data.graphs[plan.graph],
    unit = graph.energy_unit;
  if (!found) {
    leaveOut("landscape");
    return;
  }
  const total = found.orders === null ? "too many to count" : found.orders;
  const how = found.complete
    ? `All ${total} orders that the hazards allow`
    : `A sample of ${grouped(found.seen)} random orders (the hazards allow ${total})`;
  const lone = found.orders === "1";
  root.append(
    el(
      "p",
      {},
      lone
        ? "The hazards allow one order only, so there is nothing to choose there: " +
            "what is left to decide is what to keep, to store and to compute again."
        : `${how}, ${found.rule}${found.misfits ? `; ${grouped(found.misfits)} do not fit into the fastest level that way` : ""}.`,
    ),
  );
  if (!lone && found.seen > found.misfits) showDistribution(root, found, unit);
  showFronts(root, found, data, unit);
}

/**
 * @param {HTMLElement} root
 * @param {Landscape} found
 * @param {string} unit
 */
function showDistribution(root, found, unit) {
  const marks = found.marks.slice().sort((a, b) => a.energy - b.energy);
  const low = Math.min(found.low, ...marks.map((mark) => mark.energy)),
    high = Math.max(found.high, ...marks.map((mark) => mark.energy));
  const { factor, name } = energyScale(high, unit),
    bins = found.counts.length,
    wide = (found.high - found.low) / bins || Math.max(found.high, 1) * 0.004;
  const bars = found.counts
    .map((count, i) => ({ x1: (found.low + i * wide) / factor, x2: (found.low + (i + 1) * wide) / factor, count }))
    .filter((bar) => bar.count);
  const pad = (high - low) * 0.03 || wide;
  /** @param {Mark} mark */
  const words = (mark) => `${shown(mark.name, 36)}${mark.legal ? "" : " (illegal)"}`;
  root.append(
    figure(
      `Distribution of ${costWord(unit) === "time" ? "times" : "energies"} over orders`,
      (width) => {
        /** @type {[number, number]} */
        const domain = [(low - pad) / factor, (high + pad) / factor],
          place = d3.scaleLinear(domain, [58, width - 24]);
        /** @type {number[]} */
        const ends = []; // of the rows: labels stand in as many above the bars as they need
        const placed = marks.map((mark) => {
          const at = place(mark.energy / factor),
            half = textWidth(words(mark), 12) / 2 + 8,
            middle = Math.max(50 + half, Math.min(width - 12 - half, at));
          let row = ends.findIndex((end) => end < middle - half);
          if (row < 0) row = ends.length;
          ends[row] = middle + half;
          return { ...mark, x: mark.energy / factor, shift: middle - at, row };
        });
        const top = 34 + ends.length * 17;
        const chart = plotOf(width, {
          height: 250 + top,
          marginTop: top,
          x: { domain, label: `${costWord(unit)} (${name})`, labelAnchor: "center" },
          y: { label: "↑ orders", grid: true, tickFormat: brief },
          marks: [
            Plot.rectY(bars, {
              x1: "x1",
              x2: "x2",
              y: "count",
              fill: "var(--strong-line)",
              insetLeft: width < 560 ? 0 : 0.5, // thin bars need all of their width
              insetRight: width < 560 ? 0 : 0.5,
              title: (d) => `${grouped(d.count)} orders from ${d.x1.toPrecision(5)} to ${d.x2.toPrecision(5)} ${name}`,
              tip: true,
            }),
            Plot.ruleX(placed, {
              x: "x",
              stroke: (d) => (d.legal ? planColour(0) : planColour(1)),
              strokeWidth: 2,
              strokeDasharray: (d) => (d.legal ? null : "3 3"),
            }),
            Plot.ruleY([0]),
            ...placed.map((mark) =>
              Plot.text([mark], {
                x: "x",
                text: words,
                frameAnchor: "top",
                dy: -14 - 17 * mark.row,
                dx: mark.shift,
                fill: "var(--ink)",
                fontWeight: 500,
              }),
            ),
          ],
        });
        return chart;
      },
      null,
      asTable(["order", `${costWord(unit)} (${unit})`, "legal"], () => [
        ...marks.map((mark) => [shown(mark.name), grouped(mark.energy), mark.legal ? "yes" : "no"]),
        ["cheapest order found", grouped(found.low), "yes"],
        ["most expensive order found", grouped(found.high), "yes"],
      ]),
    ),
  );
  const own = found.marks[0];
  if (own && own.legal) {
    const cheaper = d3.sum(found.counts.slice(0, Math.max(0, Math.ceil((own.energy - found.low) / wide - 1e-9))));
    const better =
      own.energy <= found.low
        ? "No order seen is cheaper"
        : `At most ${((100 * cheaper) / d3.sum(found.counts)).toFixed(1)} % of the orders seen are cheaper`;
    root.append(
      el(
        "p",
        {},
        `${better} than ${shown(own.name, 40)} (${energyText(own.energy, unit)}). ` +
          `The cheapest costs ${energyText(found.low, unit)}, the most expensive ${energyText(found.high, unit)}.`,
      ),
    );
  }
}

/**
 * @param {HTMLElement} root
 * @param {Landscape} found
 * @param {ReportData} data
 * @param {string} unit
 */
function showFronts(root, found, data, unit) {
  root.append(el("h3", {}, `${capital(costWord(unit))} against memory`));
  if (!found.curves.length) {
    root.append(
      el("p", {}, "No other sizes were priced: the plan is too long, or nothing in it depends on a level's capacity."),
    );
    return;
  }
  const names = data.plans[0].machine.level.map((level) => level.name),
    levels = [...new Set(found.curves.map((curve) => curve.level))];
  const holder = el("div", {}),
    gunit = data.graphs[data.plans[0].graph].unit;
  /** @param {string} name */
  const number = (name) =>
    Math.max(
      0,
      data.plans.findIndex((plan) => plan.name === name),
    );
  /** @param {CapacityCurve} curve */
  const colourOf = (curve) => (curve.rule.startsWith("solved") ? 4 : number(curve.plan));
  /** @param {number} level */
  const draw = (level) => {
    const curves = found.curves.filter((curve) => curve.level === level);
    const most = d3.max(curves.flatMap((curve) => curve.energy)) ?? 0,
      { factor, name } = energyScale(most, unit);
    const points = curves.flatMap((curve) =>
      curve.capacity.map((room, k) => ({ room, energy: curve.energy[k] / factor, plan: curve.plan, curve })),
    );
    // The Pareto front: no other point needs less memory and less energy.
    let least = Infinity;
    const pareto = d3
      .sort(
        points,
        (p) => p.room,
        (p) => p.energy,
      )
      .filter((p) => {
        const better = p.energy < least - 1e-12;
        if (better) least = p.energy;
        return better;
      });
    const own = curves[0].own,
      [lowest, highest] = d3.extent(points, (p) => p.energy),
      steep = lowest !== undefined && lowest > 0 && highest / lowest > 20,
      [narrowest = 1, widest = 1] = d3.extent(points, (p) => p.room);
    const plans = data.plans.filter(
      (plan) =>
        plan.judgement.legal &&
        plan.judgement.peak.length &&
        plan.graph === data.plans[0].graph &&
        plan.name !== undefined &&
        curves.some((curve) => curve.plan === plan.name),
    );
    holder.replaceChildren(
      themed(() =>
        planLegend(
          curves.map((curve) => ({
            i: colourOf(curve),
            words: curve.rule.startsWith("solved") ? curve.rule : `${shown(curve.plan, 40)}: ${curve.rule}`,
          })),
        ),
      ),
      figure(
        `${capital(costWord(unit))} against the capacity of a level`,
        (width) =>
          plotOf(width, {
            x: {
              type: "log",
              label: `capacity of ${shown(names[level], 20)} (${gunit}, log scale)`,
              labelAnchor: "center",
              tickFormat: logTicks([narrowest, widest]),
            },
            y: {
              label: `↑ ${costWord(unit)} (${name}${steep ? ", log scale" : ""})`,
              grid: true,
              ...(steep ? { type: "log", tickFormat: logTicks([1, 100]) } : { zero: true }),
            },
            marks: [
              Plot.ruleX([own], { stroke: "var(--muted)", strokeDasharray: "4 3" }),
              Plot.text([own], {
                x: (d) => d,
                text: () => `as it is: ${brief(own)}`,
                frameAnchor: "top",
                dy: -12,
                fill: "var(--muted)",
              }),
              ...curves.map((curve) => {
                const i = colourOf(curve);
                return Plot.line(
                  points.filter((p) => p.curve === curve),
                  {
                    x: "room",
                    y: "energy",
                    curve: "step-after",
                    stroke: planColour(i),
                    strokeWidth: 2,
                    strokeDasharray: PLAN_DASHES[i % 6],
                  },
                );
              }),
              ...curveReadout(
                points.map((p) => ({
                  x: p.room,
                  y: p.energy,
                  words: `${shown(p.plan, 40)}\n${grouped(p.room)} ${gunit}: ${grouped(p.energy)} ${name}`,
                })),
              ),
              Plot.dot(pareto, {
                x: "room",
                y: "energy",
                r: 4,
                fill: "var(--ink)",
              }),
              Plot.dot(plans, {
                x: (p) => Math.max(1, p.judgement.peak[level]),
                y: (p) => p.judgement.energy / factor,
                symbol: "star",
                r: 8,
                fill: (p) => planColour(data.plans.indexOf(p)),
                stroke: "var(--ink)",
                title: (p) =>
                  `${shown(p.name)}: uses ${grouped(p.judgement.peak[level])}, costs ${energyText(p.judgement.energy, unit)}`,
                tip: true,
              }),
              ...(steep ? [] : [Plot.ruleY([0])]),
            ],
          }),
        `Dots: the Pareto front, where less ${costWord(unit)} needs more memory.` +
          (plans.length ? " Stars: the plans themselves, at the room they really use." : ""),
        asTable(["plan", `capacity (${gunit})`, `${costWord(unit)} (${name})`], () =>
          points.map((p) => [shown(p.plan), grouped(p.room), grouped(p.energy)]),
        ),
      ),
    );
  };
  if (levels.length > 1) {
    /** @type {HTMLSelectElement} */
    const select = el(
      "select",
      { onchange: () => draw(Number(select.value)) },
      ...levels.map((level) => el("option", { value: level }, shown(names[level], 30))),
    );
    root.append(el("label", {}, "Level that changes:", select));
    const start = levels[Math.min(1, levels.length - 1)];
    select.value = String(start);
    root.append(holder);
    draw(start);
  } else {
    root.append(holder);
    draw(levels[0]);
  }
}
