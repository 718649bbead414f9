// The page of a sweep: curves of energy against what was swept, the front of budgets against time and joules, and all runs.

/** @type {Record<string, string>} */
const SWEPT = { capacity: "capacity", share: "share of program order's peak", time_limit: "time limit (s)", seed: "seed" };
/** @type {Record<FigureName, string>} */
const FIGURES = {
  best_energy: "energy, best known",
  energy: "energy of each run",
  step_seconds: "seconds per step",
  step_joules: "joules per step",
  gap: "gap",
  saving: "times cheaper than program order",
  seconds: "seconds to plan",
};
/** @type {FigureName[]} */
const FIGURE_NAMES = ["best_energy", "energy", "step_seconds", "step_joules", "gap", "saving", "seconds"];
const NAMED = ["graph", "machine", "level", "objective", "tile"];
const DOT = 4;
const MOST_LISTED = 1000;
const MOST_LINES = 24;

/** @param {SweepRow} row */
const family = (row) => row.graph.split(":")[0];
/**
 * What a run has in a column of numbers, or null.
 * @param {SweepRow} row
 * @param {string} name
 */
function numberIn(row, name) {
  /** @type {unknown} */
  const value = Reflect.get(row, name);
  return typeof value === "number" ? value : null;
}

/**
 * What a run has in a column, as a text, or null.
 * @param {SweepRow} row
 * @param {string} name
 */
function textIn(row, name) {
  /** @type {unknown} */
  const value = Reflect.get(row, name);
  return value === null || value === undefined ? null : String(value);
}

/**
 * The different texts in a column.
 * @param {SweepRow[]} rows
 * @param {string} name
 */
const distinct = (rows, name) => [...new Set(rows.flatMap((row) => textIn(row, name) ?? []))];

/** @param {SweepRow} row */
const unitOf = (row) => row.energy_unit || "units";
/** @param {string} name */
const words = (name) => SWEPT[name] || name.replace(/^graph_/, "").replaceAll("_", " ");
/** @type {(row: SweepRow, name: FigureName) => number | null} */
const figureOf = (row, name) => {
  if (name !== "saving") return row[name];
  return row.energy !== null && row.energy > 0 && row.program_order ? row.program_order / row.energy : null;
};

/**
 * The columns of numbers that differ between rows: what can be an axis.
 * @param {SweepRow[]} rows
 * @param {string[]} columns
 */
function sweptColumns(rows, columns) {
  const candidates = ["capacity", "share", ...columns.filter((name) => name.startsWith("graph_")), "time_limit", "seed"];
  return candidates.filter((name) => distinct(rows, name).length > 1);
}

/**
 * Lines through rows that differ in nothing but `x`: [{label, rows}], the rows by x.
 * @param {SweepRow[]} rows
 * @param {string} x
 * @param {string[]} swept
 * @returns {SweepLine[]}
 */
function linesOf(rows, x, swept) {
  const apart = [...NAMED, ...swept.filter((name) => name !== x && !(x === "capacity" && name === "share"))].filter(
    (name) => distinct(rows, name).length > 1 && !(name === "graph" && swept.some((one) => one.startsWith("graph_"))),
  );
  // A share is another way to write a capacity, and a graph whose parameter is the axis is named by it.
  const kept = apart.filter((name) => !(x === "share" && name === "capacity") && !(x.startsWith("graph_") && name === "graph"));
  /** @type {Map<string, SweepRow[]>} */
  const lines = new Map();
  for (const row of rows) {
    const label = kept
      .map((name) =>
        NAMED.includes(name) ? shown(textIn(row, name) ?? "–", 60) : `${words(name)} ${brief(numberIn(row, name) ?? 0)}`,
      )
      .join(", ");
    entryOf(lines, label, () => []).push(row);
  }
  return [...lines].map(([label, found]) => ({ label, rows: d3.sort(found, (row) => numberIn(row, x) ?? 0) }));
}

/** @param {SweepRow} row */
const told = (row) =>
  [
    shown(row.graph, 80),
    [shown(row.machine, 40), ...(row.capacities === null ? [] : [shown(row.capacities, 80)])].join(", "),
    row.energy === null ? row.status : `${energyText(row.energy, unitOf(row))}, ${row.status}`,
    row.bound !== null && row.bound > 0 ? `bound ${energyText(row.bound, unitOf(row))}` : null,
    row.report ? "click: the plan's page" : "plan: click for the file",
  ]
    .filter(Boolean)
    .join("\n");

/** @param {SweepRow} row */
const opened = (row) => row.report || row.plan;

/**
 * Powers of two as people write them: 512, 16 Ki, 1 Mi.
 * @param {number} n
 */
const binary = (n) => (n >= 2 ** 20 ? `${n / 2 ** 20} Mi` : n >= 2 ** 10 ? `${n / 2 ** 10} Ki` : String(n));

/**
 * An axis by name: a capacity with its level and unit.
 * @param {SweepRow[]} rows
 * @param {string} x
 */
function axisWords(rows, x) {
  if (x !== "capacity") return words(x);
  const levels = distinct(rows, "level"),
    units = distinct(rows, "unit");
  return `capacity${levels.length === 1 ? ` of ${shown(levels[0], 20)}` : ""}${units.length === 1 ? ` (${shown(units[0], 20)})` : ""}`;
}

/**
 * One chart: a line per setting, with the room down to the bound as a band where energies are drawn.
 * @param {SweepLine[]} lines
 * @param {string} x
 * @param {FigureName} y
 * @param {string} unit
 * @param {number} width
 */
function curveChart(lines, x, y, unit, width) {
  const rows = lines.flatMap((line) => line.rows);
  const byKey = new Map(rows.map((row) => [row.key, row]));
  const isEnergy = y === "energy" || y === "best_energy";
  const { factor, name } = isEnergy ? energyScale(d3.max(rows, (row) => figureOf(row, y)) || 0, unit) : { factor: 1, name: "" }; // prettier-ignore
  const points = lines.flatMap((line, i) =>
    line.rows.flatMap((row) => {
      const figure = figureOf(row, y),
        at = numberIn(row, x),
        bound = (y === "best_energy" ? row.best_bound : row.bound) || 0;
      return figure === null || at === null ? [] : [{ row, i, x: at, y: figure / factor, low: bound / factor }];
    }),
  );
  const positive = points.every((point) => point.x > 0) && points.length > 0;
  const [least = 0, most = 0] = d3.extent(points, (point) => point.y),
    [nearest = 1, farthest = 1] = d3.extent(points, (point) => point.x);
  const steep = least > 0 && most / least > 8;
  const wide = positive && farthest / nearest > 8;
  const doubled = wide && points.every((point) => Number.isInteger(Math.log2(point.x))) && distinct(rows, x).length <= 16;
  const floor = steep ? least / 1.5 : 0;
  const band = isEnergy ? points.filter((point) => point.low > 0) : [];
  return plotOf(width, {
    x: {
      type: wide ? "log" : "linear",
      label: `${axisWords(rows, x)} →`,
      grid: true,
      ...(doubled ? { base: 2, ticks: distinct(rows, x).map(Number), tickFormat: (n) => binary(Math.round(n)) } : { tickFormat: wide ? undefined : brief }),
    },
    y: {
      type: steep ? "log" : "linear",
      label: `↑ ${FIGURES[y]}${name ? ` (${name})` : ""}`,
      grid: true,
      zero: !steep && isEnergy,
    },
    marks: [
      Plot.areaY(band, {
        x: "x",
        y1: (d) => Math.max(floor, d.low),
        y2: "y",
        z: "i",
        fill: (d) => planColour(d.i),
        fillOpacity: 0.15,
      }),
      Plot.line(points, {
        x: "x",
        y: "y",
        z: "i",
        stroke: (d) => planColour(d.i),
        strokeDasharray: (d) => PLAN_DASHES[Math.floor(d.i / 6) % 6],
        strokeWidth: 2,
      }),
      Plot.dot(points, {
        x: "x",
        y: "y",
        r: DOT,
        fill: (d) => ((y === "best_energy" ? d.low >= d.y : d.row.status === "optimal") ? planColour(d.i) : "var(--paper)"),
        stroke: (d) => planColour(d.i),
        strokeWidth: 1.5,
        href: (d) => opened((y === "best_energy" && byKey.get(d.row.best_key ?? "")) || d.row),
        title: (d) => told(d.row),
      }),
    ],
  });
}

/**
 * The legend of a chart's lines.
 * @param {{label: string}[]} lines
 */
function lineLegend(lines) {
  return el(
    "div",
    { class: "legend" },
    ...lines.map((line, i) =>
      el("span", {}, lineSample(planColour(i), PLAN_DASHES[Math.floor(i / 6) % 6]), ` ${line.label || "all runs"}`),
    ),
  );
}

/**
 * A chart of one family of graphs, with a choice of axes.
 * @param {HTMLElement} root
 * @param {string} name
 * @param {SweepRow[]} rows
 * @param {string[]} columns
 */
function showFamily(root, name, rows, columns) {
  const swept = sweptColumns(rows, columns);
  if (!swept.length) return;
  // A step planned for time has seconds where one planned for energy has joules: those have figures of their own.
  const apart = rows.some((row) => row.step_seconds !== null);
  const figures = FIGURE_NAMES.filter(
    (one) => rows.some((row) => figureOf(row, one) !== null) && !(apart && one.endsWith("energy")),
  );
  const across = el("select", {}, ...swept.map((one) => el("option", { value: one }, words(one)))),
    up = el("select", {}, ...figures.map((one) => el("option", { value: one }, FIGURES[one])));
  const place = el("div", {});
  const draw = () => {
    const x = across.value,
      y = figures[up.selectedIndex];
    const all = linesOf(rows, x, swept);
    const lines = all.slice(0, MOST_LINES);
    const unit = rows.find((row) => row.energy_unit)?.energy_unit || "units";
    place.replaceChildren(
      figure(
        `${FIGURES[y]} of ${name} against ${words(x)}`,
        (width) => curveChart(lines, x, y, unit, width),
        (y.endsWith("energy") ? "Bands reach down to the proven bound; filled points are proven optimal. " : "") +
          (y === "best_energy" ? "Without caches, a plan that fits a smaller capacity also counts for the larger ones. " : "") +
          (all.length > lines.length ? `${all.length - lines.length} more lines are in the table. ` : ""),
      ),
      ...(lines.length > 1 ? [lineLegend(lines)] : []),
    );
  };
  [across, up].forEach((select) => select.addEventListener("change", draw));
  const choices = el("div", { class: "row" }, el("label", {}, "show ", up), el("label", {}, "against ", across));
  root.append(el("h2", {}, shown(name, 80)), choices, place);
  draw();
}

/**
 * Runs that no other run of the same step beats in all of some figures at once.
 * @param {StepRow[]} rows
 * @param {(keyof StepFigures)[]} axes
 */
function paretoFront(rows, axes) {
  /**
   * @param {StepRow} a
   * @param {StepRow} b
   */
  const beats = (a, b) => axes.every((one) => a[one] <= b[one]) && axes.some((one) => a[one] < b[one]);
  return rows.filter((row) => !rows.some((other) => other.graph === row.graph && beats(other, row)));
}

/**
 * @param {HTMLElement} root
 * @param {SweepRow[]} rows
 */
function showFront(root, rows) {
  /** @type {StepRow[]} */
  const steps = rows.flatMap((row) => {
    const { graph, capacity, step_seconds, step_joules } = row;
    if (capacity === null || step_seconds === null || step_joules === null) return [];
    return [{ graph, capacity, step_seconds, step_joules, row }];
  });
  if (!steps.length) return;
  root.hidden = false;
  const front = new Set(paretoFront(steps, ["capacity", "step_seconds", "step_joules"]));
  const graphs = [...new Set(steps.map((step) => step.graph))];
  for (const y of /** @type {const} */ (["step_seconds", "step_joules"])) {
    root.append(
      figure(
        `${FIGURES[y]} against the budget`,
        (width) =>
          plotOf(width, {
            x: { type: "log", label: "budget (bytes) →", grid: true, tickFormat: brief },
            y: { label: `↑ ${FIGURES[y]}`, grid: true },
            marks: [
              Plot.line(
                paretoFront(steps, ["capacity", y]).sort((a, b) => a.capacity - b.capacity),
                {
                  x: "capacity",
                  y,
                  z: "graph",
                  curve: "step-after",
                  stroke: (d) => planColour(graphs.indexOf(d.graph)),
                  strokeOpacity: 0.5,
                },
              ),
              Plot.dot(steps, {
                x: "capacity",
                y,
                r: (d) => (front.has(d) ? DOT + 1 : DOT - 1),
                fill: (d) => (front.has(d) ? planColour(graphs.indexOf(d.graph)) : "var(--paper)"),
                stroke: (d) => planColour(graphs.indexOf(d.graph)),
                href: (d) => opened(d.row),
                title: (d) => told(d.row),
              }),
            ],
          }),
        "Line: the least for every budget. Filled: no other run needs less of budget, time and joules at once (Pareto front).",
      ),
    );
  }
  root.append(lineLegend(graphs.map((graph) => ({ label: shown(graph, 60) }))));
}

/**
 * All runs, the first `MOST_LISTED` of them, each with its plan.
 * @param {HTMLElement} root
 * @param {SweepRow[]} rows
 */
function showRuns(root, rows) {
  /** @type {(href: string | null, text: string) => Node | string} */
  const link = (href, text) => (href ? el("a", { href }, text) : "");
  const columns = ["graph", "machine", "capacities", "energy", "gap", "status", "plan", "page"];
  const cells = rows.slice(0, MOST_LISTED).map((row) => [
    shown(row.graph, 60),
    shown(row.machine, 40),
    row.capacities === null ? "–" : shown(row.capacities, 60),
    row.energy === null ? "–" : energyText(row.energy, unitOf(row)),
    row.gap === null ? "–" : `${(100 * row.gap).toFixed(2)} %`,
    row.error ? `${row.status}: ${shown(row.error, 160)}` : row.status,
    link(row.plan, "plan"),
    link(row.report, "page"),
  ]);
  /** @type {(tag: "th" | "td", items: (Node | string)[]) => HTMLElement} */
  const line = (tag, items) => el("tr", {}, ...items.map((item) => el(tag, tag === "th" ? { scope: "col" } : {}, item)));
  root.append(
    el(
      "div",
      { class: "scroll" },
      el("table", {}, el("thead", {}, line("th", columns)), el("tbody", {}, ...cells.map((row) => line("td", row)))),
    ),
  );
  if (rows.length > MOST_LISTED) root.append(el("p", {}, `${grouped(rows.length - MOST_LISTED)} more are in table.csv.`));
}

function startCurves() {
  /** @type {SweepData} */
  const data = JSON.parse(section("data").textContent ?? "");
  const theme = el("button", { type: "button", "aria-label": "Switch between light and dark" }, "◐");
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    document.dispatchEvent(new Event("themechange"));
  });
  section("controls").append(theme);
  /** @param {string} status */
  const count = (status) => data.rows.filter((row) => row.status === status).length;
  const states = ["optimal", "bounded", "heuristic", "impossible", "failed"].filter(count);
  section("glance").append(
    el("p", {}, `${plural(data.rows.length, "run")}: ${states.map((one) => `${grouped(count(one))} ${one}`).join(", ")}.`),
  );
  const solved = data.rows.filter((row) => row.energy !== null);
  for (const [name, rows] of d3.group(solved, family)) showFamily(section("curves"), name, rows, data.columns);
  showFront(section("front"), solved);
  showRuns(section("runs"), data.rows);
  document.documentElement.dataset.ready = "true";
}

startCurves();
