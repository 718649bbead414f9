// Reuse distances and miss curves, drawn with Observable Plot.

const PLOT_STYLE = { fontSize: "12px", background: "none", overflow: "visible" };
/**
 * Labels for a log axis: powers of ten, and twos and fives between where there are few of them.
 * @type {(domain: [number, number]) => (n: number) => string}
 */
const logTicks = (domain) => (n) => {
  const lead = Math.round(n / 10 ** Math.floor(Math.log10(n) + 1e-9));
  return lead === 1 || (domain[1] / domain[0] < 2000 && (lead === 2 || lead === 5)) ? brief(n) : "";
};

/** @param {number} width */
const plotHeight = (width) => Math.max(230, Math.min(320, width * 0.5));

/**
 * Common options of a chart: wide enough margins, labelled axes, a grid.
 * @param {number} width
 * @param {PlotOptions} options
 */
function plotOf(width, options) {
  return Plot.plot({
    width,
    height: options.height || plotHeight(width),
    marginLeft: 58,
    marginBottom: 44,
    marginTop: 48, // the axis title, and two rows of labels of levels
    marginRight: 24,
    style: PLOT_STYLE,
    ...options,
  });
}

/**
 * A read-out for curves: a line at the nearest point along x, and its words.
 * @param {CurvePoint[]} points
 */
const curveReadout = (points) => [
  Plot.ruleX(points, Plot.pointerX({ x: "x", stroke: "var(--muted)", strokeDasharray: "2 2" })),
  Plot.tip(points, Plot.pointerX({ x: "x", y: "y", title: "words", fontSize: 12 })),
];

/**
 * Level boundaries as labelled vertical lines; labels that would collide go to a second row, or are left out.
 * @param {Measured} measured
 * @param {[number, number]} domain
 * @param {number} width
 */
function boundaryMarks({ plan, found }, domain, width) {
  const { level } = plan.machine,
    used = new Set(level.length < MANY_LEVELS ? level.keys() : usedLevels(plan));
  const rules = found.reach
    .map((at, i) => ({ at, i, name: shown(level[i].name, 14), row: -1 }))
    .filter(({ at, i }) => used.has(i) && at >= domain[0] && at <= domain[1]);
  const place = d3.scaleLog(domain, [58, width - 24]),
    ends = [-Infinity, -Infinity];
  for (const rule of rules) {
    rule.row = ends.findIndex((end) => place(rule.at) - end >= 66);
    if (rule.row >= 0) ends[rule.row] = place(rule.at);
  }
  return [0, 1, -1].flatMap((level) => {
    const part = rules.filter((rule) => rule.row === level);
    return part.length
      ? [
          Plot.ruleX(part, { x: "at", stroke: "var(--muted)", strokeDasharray: "4 3" }),
          Plot.text(level < 0 ? [] : part, {
            x: "at",
            text: (d) => `${d.name} ends`,
            frameAnchor: "top",
            lineAnchor: "bottom",
            dy: -8 - 12 * level,
            fill: "var(--muted)",
          }),
        ]
      : [];
  });
}

/**
 * The plans whose memory was measured.
 * @param {ReportData} data
 */
const withLocality = (data) =>
  data.plans.flatMap((plan, i) => (plan.reuse ? [{ plan, i, found: plan.reuse }] : []));

/**
 * A piece of a line, for legends.
 * @param {string} colour
 * @param {string} dash
 */
function lineSample(colour, dash) {
  const svg = d3.create("svg").attr("width", 26).attr("height", 8);
  svg
    .append("line")
    .attr("x1", 0)
    .attr("x2", 26)
    .attr("y1", 4)
    .attr("y2", 4)
    .style("stroke", colour)
    .attr("stroke-width", 2.5)
    .attr("stroke-dasharray", dash);
  return svg.node();
}

/** @param {LegendLine[]} items */
const planLegend = (items) =>
  el(
    "div",
    { class: "legend" },
    ...items.map(({ i, words }) => el("span", {}, lineSample(planColour(i), PLAN_DASHES[i % 6]), words)),
  );

/**
 * Legends hold colours of the theme, so they are made again when it changes.
 * @param {() => HTMLElement} make
 */
function themed(make) {
  const holder = el("div", {}, make());
  document.addEventListener("themechange", () => holder.replaceChildren(make()));
  return holder;
}

/**
 * @param {HTMLElement} root
 * @param {ReportData} data
 */
function showReuse(root, data) {
  const items = withLocality(data);
  if (!items.length) {
    leaveOut("reuse");
    leaveOut("misses");
    return;
  }
  const { plan, found } = items[0],
    unit = data.graphs[plan.graph].unit;
  const what = found.line > 1 ? `lines of ${found.line} ${unit}` : unit,
    units = found.line > 1 ? what : `units (${unit})`;
  const colds = items
    .filter((one) => one.found.cold)
    .map((one) => `${grouped(one.found.cold)} of ${grouped(one.found.accesses)} (${shown(one.plan.name, 40)})`);
  const inLoop = items.every((one) => one.found.steady);
  root.append(
    el(
      "p",
      {},
      `A reuse distance is the number of different ${units} touched since the last touch of the same one, itself included. ` +
        "An LRU cache of at least that size still holds it. " +
        (inLoop ? "The step is part of a loop: the last touch may be in the step before. " : "") +
        (colds.length ? `First touches have no distance: ${colds.join(", ")}.` : ""),
    ),
  );
  root.append(
    themed(() =>
      planLegend(
        items.map(({ plan: p, i, found: f }) => ({
          i,
          words: `${shown(p.name, 40)}: mean distance ${grouped(Math.round(f.mean))}`,
        })),
      ),
    ),
  );
  const most = d3.max(items, ({ found: f }) => d3.max(f.distance) || 1) || 1;
  /** @type {[number, number]} */
  const domain = [0.8, Math.max(most, ...found.reach.filter((at) => at < most * 8)) * 1.6];
  const edges = d3.range(-0.5, Math.log2(most) + 1.5, 0.5).map((power) => 2 ** power);
  const bins = items.flatMap(({ found: f, i, plan: p }) => {
    const sums = new Float64Array(edges.length - 1);
    f.distance.forEach((d, k) => {
      const at = d3.bisectRight(edges, d) - 1;
      if (at >= 0 && at < sums.length) sums[at] += f.weight[k];
    });
    return Array.from(sums)
      .map((units, k) => ({ x1: edges[k], x2: edges[k + 1], units, i, name: p.name }))
      .filter((bin) => bin.units > 0);
  });
  const label = `reuse distance (${what}, log scale)`;
  root.append(
    figure(
      "Histogram of reuse distances",
      (width) =>
        plotOf(width, {
          x: { type: "log", domain, label, tickFormat: logTicks(domain), labelAnchor: "center" },
          y: { label: `↑ touches (${what})`, grid: true, tickFormat: brief },
          marks: [
            ...items.map(({ i }, k) =>
              Plot.rectY(
                bins.filter((bin) => bin.i === i),
                {
                  x1: (d) => d.x1 * (d.x2 / d.x1) ** (0.08 + (0.84 * k) / items.length),
                  x2: (d) => d.x1 * (d.x2 / d.x1) ** (0.08 + (0.84 * (k + 1)) / items.length),
                  y: "units",
                  fill: planColour(i),
                  title: (d) =>
                    `${shown(d.name)}\n${grouped(d.units)} touches at distances ${brief(Math.ceil(d.x1))} ` +
                    `to ${brief(Math.floor(d.x2))}`,
                  tip: true,
                },
              ),
            ),
            ...boundaryMarks(items[0], domain, width),
            Plot.ruleY([0]),
          ],
        }),
      "Histogram: two bars per doubling of the distance.",
      asTable(["plan", "distance from", "to", "touches"], () =>
        bins.map((bin) => [
          shown(bin.name),
          grouped(Math.ceil(bin.x1)),
          grouped(Math.floor(bin.x2)),
          grouped(bin.units),
        ]),
      ),
    ),
  );
  const curves = items.map(({ found: f, i }) => {
    let sum = 0;
    /** @type {[number, number][]} */
    const points = [[domain[0], 0]];
    f.distance.forEach((d, k) => {
      sum += f.weight[k];
      points.push([d, (100 * sum) / f.accesses]);
    });
    points.push([domain[1], points[points.length - 1][1]]);
    return { i, points };
  });
  const shares = curves.flatMap(({ i, points }) =>
    points.slice(1, -1).map(([x, y]) => ({
      x,
      y,
      words: `${shown(data.plans[i].name, 40)}\n${y.toFixed(1)} % at distance ${grouped(x)} or nearer`,
    })),
  );
  root.append(
    figure(
      "Cumulative distribution of reuse distances",
      (width) =>
        plotOf(width, {
          x: { type: "log", domain, label, tickFormat: logTicks(domain), labelAnchor: "center" },
          y: { domain: [0, 100], label: "↑ touches at this distance or nearer (%)", grid: true },
          marks: [
            ...curves.map(({ i, points }) =>
              Plot.line(points, {
                curve: "step-after",
                stroke: planColour(i),
                strokeWidth: 2,
                strokeDasharray: PLAN_DASHES[i % 6],
              }),
            ),
            ...boundaryMarks(items[0], domain, width),
            Plot.ruleY([0]),
            ...curveReadout(shares),
          ],
        }),
      `Cumulative: the share of touches that an LRU cache of this size would hit.${
        colds.length ? " The rest, up to 100 %, are first touches." : ""
      }`,
      asTable(["plan", `distance (${what})`, "touches at this distance or nearer (%)"], () =>
        curves.flatMap(({ i, points }) =>
          points.slice(1, -1).map(([d, share]) => [shown(data.plans[i].name), grouped(d), share.toFixed(3)]),
        ),
      ),
    ),
  );
}

/**
 * Numbered circles on the knees of a curve; one that would lie on another goes beside it, where there is room within the frame.
 * @param {(Knee & {k: number, y: number})[]} knees
 * @param {[number, number]} domain
 * @param {number} most The upper end of the vertical axis.
 * @param {number} width
 */
function kneeMarks(knees, domain, most, width) {
  const across = d3.scaleLog(domain, [58, width - 24]),
    up = d3.scaleLinear([0, most], [plotHeight(width) - 44, 48]),
    steps = [0, -20, 20, -40, 40, -60, 60],
    /** @type {[number, number][]} */
    places = steps.flatMap((a) => steps.map(/** @returns {[number, number]} */ (b) => [a, b])),
    shifts = d3.sort(places, ([a, b]) => Math.hypot(a, b));
  /** @type {[number, number][]} */
  const taken = [];
  return knees.flatMap((knee) => {
    const x = across(knee.size),
      y = up(knee.y);
    const [dx, dy] =
      shifts.find(
        ([a, b]) =>
          x + a < width - 12 && x + a > 68 && y + b > 58 && y + b < plotHeight(width) - 54 &&
          taken.every(([c, d]) => Math.hypot(x + a - c, y + b - d) >= 20),
      ) ?? [0, 0]; // prettier-ignore
    taken.push([x + dx, y + dy]);
    const at = /** @type {const} */ ({ x: "size", y: "y", dx, dy });
    return [
      Plot.dot([knee], { ...at, r: 9, fill: "var(--paper)", stroke: planColour(0), strokeWidth: 1.5 }),
      Plot.text([knee], { ...at, text: (d) => String(d.k), fill: "var(--ink)", fontWeight: 600, fontSize: 11 }),
    ];
  });
}

/**
 * LRU misses of every size, from the distances.
 * @param {StepReuse} found
 * @returns {(size: number) => number}
 */
function lruMisses(found) {
  return (size) => {
    let held = 0;
    for (let k = 0; k < found.distance.length && found.distance[k] <= size; k++) held += found.weight[k];
    return found.accesses - held;
  };
}

/**
 * @param {HTMLElement} root
 * @param {ReportData} data
 * @param {number} index
 */
function showMisses(root, data, index) {
  const plan = data.plans[index],
    found = plan.reuse,
    graph = data.graphs[plan.graph];
  root.replaceChildren();
  if (!found || !found.distance.length) {
    root.append(el("p", {}, "Nothing is touched twice in this plan, so no cache can help."));
    return;
  }
  const what = found.line > 1 ? `lines of ${found.line} ${graph.unit}` : graph.unit,
    misses = lruMisses(found);
  const levels = plan.machine.level,
    names = levels.map((level) => level.name);
  const most = Math.max(found.cold, found.distance[found.distance.length - 1]);
  /** @type {[number, number]} */
  const domain = [0.8, most * 1.6];
  /** @typedef {[size: number, misses: number]} MissPoint */
  /** @type {MissPoint[]} */
  const lru = [[domain[0], found.accesses], ...found.distance.map(/** @returns {MissPoint} */ (d) => [d, misses(d)]), [domain[1], found.cold]]; // prettier-ignore
  /** @type {MissPoint[]} */
  const allOpt = found.opt_size.map((size, k) => [size, found.opt_misses[k]]),
    opt = allOpt.filter(([size]) => size <= domain[1]);
  const knees = found.knees.map((knee, k) => ({ ...knee, k: k + 1, y: misses(knee.size) }));
  root.append(
    el(
      "p",
      {},
      `Misses of a cache of each size in one step ${
        found.steady ? "of an endless loop" : "that starts with an empty cache"
      }: with LRU, and with Belady's OPT, the best replacement there is${
        opt.length ? "" : " (left out: it takes too long for a step like this)"
      }.${found.steady && opt.length ? " OPT: what a second step adds to the first." : ""}${
        found.cold ? ` No cache avoids the ${grouped(found.cold)} first touches.` : ""
      }`,
    ),
  );
  const key = () =>
    el(
      "div",
      { class: "legend" },
      ...[
        ["LRU", planColour(0), ""],
        ["OPT (Belady)", planColour(1), "7 4"],
        ["first touches: the lower bound", "var(--muted)", "2 3"],
      ]
        .filter(([name]) => (name[0] !== "O" || opt.length) && (name[0] !== "f" || found.cold))
        .map(([name, colour, dash]) => el("span", {}, lineSample(colour, dash), name)),
    );
  root.append(themed(key));
  const x = {
    type: "log",
    domain,
    label: `cache size (${what}, log scale)`,
    tickFormat: logTicks(domain),
    labelAnchor: "center",
  };
  /** @type {(lruPoints: MissPoint[], optPoints: MissPoint[]) => PlotMark[]} */
  const curves = (lruPoints, optPoints) => [
    Plot.line(lruPoints, { curve: "step-after", stroke: planColour(0), strokeWidth: 2.25 }),
    ...(optPoints.length
      ? [Plot.line(optPoints, { stroke: planColour(1), strokeWidth: 2, strokeDasharray: "7 4", marker: "dot" })]
      : []),
  ];
  root.append(
    figure(
      "Miss curve: traffic against cache size",
      (width) =>
        plotOf(width, {
          x,
          y: { label: `↑ traffic per step (${what})`, grid: true, zero: true, tickFormat: brief },
          marks: [
            ...curves(lru, opt),
            Plot.ruleY(found.cold ? [found.cold] : [], {
              stroke: "var(--muted)",
              strokeDasharray: "2 3",
              strokeWidth: 2,
            }),
            ...boundaryMarks({ plan, i: index, found }, domain, width),
            Plot.ruleY([0]),
            ...curveReadout([
              ...lru.map(([x, y]) => ({ x, y, words: `LRU of ${grouped(Math.round(x))}\n${grouped(y)} pass` })),
              ...opt.map(([x, y]) => ({ x, y, words: `OPT of ${grouped(x)}\n${grouped(y)} pass` })),
            ]),
            ...kneeMarks(knees, domain, d3.max(lru, ([, y]) => y) ?? 1, width),
          ],
        }),
      null,
      asTable(["size", "LRU misses", "OPT misses"], () =>
        found.opt_size.map((size, k) => [grouped(size), grouped(misses(size)), grouped(found.opt_misses[k])]),
      ),
    ),
  );
  if (knees.length) {
    root.append(
      el("h4", {}, "The knees"),
      el(
        "ol",
        { class: "knees" },
        ...knees.map((knee) =>
          el(
            "li",
            {},
            `From ${grouped(knee.size)} on, ${shown(knee.tensor, 60)} is still there ` +
              `when ${shown(knee.op, 60)} ${knee.write ? "writes" : "reads"} it: ${grouped(knee.saved)} ` +
              `fewer misses.`,
          ),
        ),
      ),
    );
  }
  // Of a long row of levels, those beyond the last in use are not part of the comparison.
  const slowest = levels.length < MANY_LEVELS ? levels.length - 1 : Math.max(...usedLevels(plan));
  if (slowest < 1) return;
  const last = shown(names[slowest], 30),
    slow = levels[slowest].read,
    unit = graph.energy_unit;
  /** @param {number} size */
  const hitPrice = (size) => {
    const at = found.reach.findIndex((end) => size <= end);
    return levels[at < 0 ? slowest : Math.min(at, slowest)].read;
  };
  /** @type {(size: number, misses: number) => number} */
  const cost = (size, m) => found.line * ((found.accesses - m) * hitPrice(size) + m * slow);
  const bound = found.line * ((found.accesses - found.cold) * levels[0].read + found.cold * slow);
  // A larger cache would be the slowest level itself.
  const end = Math.min(domain[1], found.reach[Math.min(slowest, found.reach.length) - 1]);
  const sizes = [...new Set([...lru.map(([s]) => s), ...found.reach, ...found.reach.map((at) => at + 1), end])]
    .filter((s) => s >= domain[0] && s <= end)
    .sort((a, b) => a - b);
  const best = opt.filter(([s]) => s <= end);
  const { factor, name } = energyScale(d3.max(sizes, (s) => cost(s, misses(s))) ?? 0, unit);
  const priced = [
    ...sizes.map((size) => ({ rule: "LRU", size, energy: cost(size, misses(size)) })),
    ...best.map(([size, m]) => ({ rule: "OPT", size, energy: cost(size, m) })),
  ];
  /** @type {(rule: string) => MissPoint[]} */
  const pointsOf = (rule) =>
    priced.flatMap((one) => (one.rule === rule ? [[one.size, one.energy / factor]] : []));
  root.append(
    figure(
      `${capital(costWord(unit))} against cache size`,
      (width) =>
        plotOf(width, {
          x,
          y: { label: `↑ ${costWord(unit)} per step (${name})`, grid: true, zero: true },
          marks: [
            ...curves(pointsOf("LRU"), pointsOf("OPT")),
            Plot.ruleY([bound / factor], { stroke: "var(--muted)", strokeDasharray: "2 3", strokeWidth: 2 }),
            ...boundaryMarks({ plan, i: index, found }, domain, width),
            Plot.ruleY([0]),
            ...curveReadout(
              priced.map(({ rule, size, energy }) => ({
                x: size,
                y: energy / factor,
                words: `${rule} of ${grouped(Math.round(size))}\n${energyText(energy, unit)}`,
              })),
            ),
          ],
        }),
      `A single cache in front of ${last}. A hit costs the read price of the level that has this size, ` +
        `a miss the read price of ${last}. The plan's own ${costWord(unit)} differs: the plan uses all levels at once, ` +
        `and pays for writes. The dotted line is a lower bound: ${
          found.cold ? "first touches from the slowest level, everything else" : "everything"
        } from the fastest.`,
      asTable(["rule", `cache size (${what})`, `${costWord(unit)} (${unit})`], () =>
        priced.map(({ rule, size, energy }) => [rule, grouped(Math.round(size)), grouped(energy)]),
      ),
    ),
  );
}
