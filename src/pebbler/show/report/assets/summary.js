// At a glance: what the plan is, what it costs, how sure that is, and where the energy goes.

/**
 * @param {HTMLElement} root
 * @param {ReportData} data
 * @param {PlanData} plan
 */
function showSummary(root, data, plan) {
  const graph = data.graphs[plan.graph],
    unit = graph.energy_unit,
    judgement = plan.judgement,
    machine = plan.machine;
  const management = {
    explicit: "memory that the plan manages itself",
    lru: "hardware LRU caches",
    recency: "note 000's recency pricing",
  }[machine.management || "explicit"];
  const sure = howSure(plan, unit);
  const versus =
    judgement.legal && plan.program_order !== null
      ? [
          " That is ",
          el("b", {}, comparedTo(judgement.energy, plan.program_order)),
          ` program order ` + `(${energyText(plan.program_order, unit)}).`,
        ]
      : [];
  root.replaceChildren(
    el(
      "p",
      { class: "sentence" },
      el("b", {}, shown(plan.name, 60)),
      ` runs ${shown(plan.source || graph.name, 60)} on ${shown(machine.name, 60)}, ${management}, ` +
        `${plan.steady ? "as one step of an endless loop" : "once"}. `,
      ...(judgement.legal
        ? ["It costs ", el("b", {}, energyText(judgement.energy, unit)), ".", ...versus, ` ${sure}`]
        : []),
    ),
    judgement.legal
      ? ""
      : el("div", { class: "banner" }, el("strong", {}, "This plan is illegal. "), shown(judgement.error ?? "", 600)),
    plan.claims.void.length
      ? el(
          "div",
          { class: "banner plain", "data-test": "void" },
          el("strong", {}, "What its file says of it does not hold: "),
          `${plan.claims.void.map((words) => shown(words, 300)).join("; ")}.`,
        )
      : "",
    ...plansTable(data),
    el("dl", { class: "tiles" }, ...tilesOf(data, plan, graph, unit)),
  );
}

/**
 * The table of all plans, where more than one was given.
 * @param {ReportData} data
 */
const plansTable = (data) => (data.plans.filter((plan) => !plan.baseline).length > 1 ? allPlans(data) : []);


const LARGE_GAP = 0.5,
  MOST_PEAKS = 7; // levels whose peaks stand on a card

/**
 * What is proven of a plan, in a sentence, and what is only claimed.
 * @param {PlanData} plan
 * @param {string} unit
 */
function howSure(plan, unit) {
  const { claims, gap } = plan;
  /** @type {Record<string, string>} */
  const sayings = {
    optimal: "It is proven optimal: no legal plan costs less.",
    heuristic: "Nothing is proven about how good it is.",
  };
  if (gap !== null)
    sayings.bounded = `It is at most ${percent(gap)} above the proven lower bound.${
      gap > LARGE_GAP
        ? " So large a gap leaves open how good the plan is; more time may narrow it."
        : ""
    }`;
  const proven = sayings[plan.status ?? ""] || "No bound came with it.";
  const words = [];
  if (claims.unverified.includes("status")) words.push("that it is optimal");
  if (claims.unverified.includes("source")) words.push("the graph that this one is said to be a form of");
  if (claims.unverified.includes("bound") && claims.bound !== null)
    words.push(`a bound of ${energyText(claims.bound, unit)}`);
  return words.length ? `${proven} Claimed by the file, not verified: ${words.join(", and ")}.` : proven;
}

/** @param {ReportData} data */
function allPlans(data) {
  const units = data.plans.map((plan) => data.graphs[plan.graph].energy_unit);
  const apart = [...new Set(data.plans.slice(1).flatMap((plan) => rulesApart(data, data.plans[0], plan)))];
  return [
    apart.length
      ? el(
          "p",
          {},
          `They are priced under different rules (${apart.join("; ")}), so their energies cannot be compared.`,
        )
      : "",
    tableOf(
      "",
      [
        "plan",
        "graph",
        new Set(units.map(costWord)).size > 1 ? "cost" : costWord(units[0]),
        "lower bound",
        "gap",
        "status",
        "moves",
      ],
      data.plans.map((one, i) => [
        shown(one.name, 40),
        shown(data.graphs[one.graph].name, 40),
        one.judgement.legal ? energyText(one.judgement.energy, units[i]) : "illegal",
        one.bound === null ? "–" : energyText(one.bound, units[i]),
        one.gap === null ? "–" : percent(one.gap),
        one.claims.unverified.includes("status") ? `${one.status} (${one.claims.status} claimed)` : one.status || "–",
        grouped(one.kind.length),
      ]),
    ),
  ];
}

/** @param {number} part */
const percent = (part) => `${(100 * part).toFixed(part < 0.001 && part > 0 ? 3 : 1)} %`;

/**
 * A figure with its name, and a note below it.
 * @param {string} label
 * @param {string} value
 * @param {Child} [note]
 */
const tile = (label, value, note) =>
  el("div", { class: "tile" }, el("dt", {}, label), el("dd", {}, value), note ? el("dd", { class: "note" }, note) : null); // prettier-ignore

/**
 * @param {ReportData} data
 * @param {PlanData} plan
 * @param {Graph} graph
 * @param {string} unit
 */
function tilesOf(data, plan, graph, unit) {
  const { judgement } = plan;
  const kinds = [0, 1, 2].map((kind) => plan.kind.filter((k) => k === kind).length);
  const runs = new Set(plan.subject.filter((_, i) => plan.kind[i] === COMPUTE)).size,
    again = kinds[0] - runs;
  const tiles = [
    tile(
      capital(costWord(unit)),
      judgement.legal ? energyText(judgement.energy, unit) : "illegal",
      judgement.legal
        ? `${plan.steady ? "per step" : "in all"}, by the referee`
        : `stops at ${judgement.move === null ? (judgement.error || "").split(":")[0] : `move ${grouped(judgement.move)}`}`,
    ),
  ];
  const { claims } = plan,
    claimed = "claimed by the file, not verified";
  if (plan.bound !== null)
    tiles.push(
      tile(
        "Lower bound",
        energyText(plan.bound, unit),
        plan.proof ? el("a", { href: "#bound" }, "what is proven, and how") : null,
      ),
    );
  if (claims.unverified.includes("bound") && claims.bound !== null)
    tiles.push(
      tile("Claimed bound", energyText(claims.bound, unit), [claimed, claims.proof].filter(Boolean).join(": ")),
    );
  if (plan.status !== null)
    tiles.push(
      tile(
        "Status",
        plan.status,
        [
          plan.gap === null ? "no gap known" : plan.gap === 0 ? "no gap" : `gap at most ${percent(plan.gap)}`,
          plan.bound === null ? null : `for ${plan.scope}`,
          claims.unverified.includes("status") ? `${claims.status} is ${claimed}` : null,
        ]
          .filter(Boolean)
          .join("; "),
      ),
    );
  if (plan.program_order !== null)
    tiles.push(
      tile(
        "Program order",
        energyText(plan.program_order, unit),
        judgement.legal && judgement.energy > 0
          ? `${(plan.program_order / judgement.energy).toFixed(2)}x this plan`
          : null,
      ),
    );
  tiles.push(
    tile(
      "Moves",
      grouped(plan.kind.length),
      [
        plural(kinds[0], "compute"),
        kinds[1] ? `${grouped(kinds[1])} ${kinds[1] === 1 ? "copy" : "copies"}` : null,
        kinds[2] ? plural(kinds[2], "drop") : null,
        again > 0 ? `${grouped(again)} recomputed` : null,
      ]
        .filter(Boolean)
        .join(", "),
    ),
  );
  const peaks = usedLevels(plan)
    .filter((i) => i < judgement.peak.length)
    .map((i) => {
      const { name, capacity } = plan.machine.level[i];
      return [shown(name, 16), `${brief(judgement.peak[i])}${capacity ? ` / ${brief(capacity)}` : ""}`];
    });
  if (peaks.length)
    tiles.push(
      tile(
        `Peak in ${peaks[0][0]} (${graph.unit})`,
        peaks[0][1],
        peaks
          .slice(1, MOST_PEAKS)
          .map((peak) => peak.join(" "))
          .join(", ") + (peaks.length > MOST_PEAKS ? ", ..." : "") || null,
      ),
    );
  return tiles;
}

/**
 * @param {PlanData} plan
 * @param {Graph} graph
 * @param {string} unit
 */
function energyBars(plan, graph, unit) {
  const { judgement, machine } = plan;
  /** @type {(title: string, rows: {name: string, energy: number, colour?: string, rest?: boolean}[]) => HTMLElement} */
  const block = (title, rows) => {
    const most =
      d3.max(
        rows.filter((row) => !row.rest),
        (row) => row.energy,
      ) || 1;
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
          ...rows.map((row) =>
            el(
              "tr",
              {},
              el("td", { class: "name", title: row.name }, row.name),
              el(
                "td",
                {},
                row.rest
                  ? ""
                  : el("div", {
                      class: "bar",
                      style: { width: `${(100 * row.energy) / most}%`, background: row.colour || null },
                    }),
              ),
              el("td", { class: "n" }, energyText(row.energy, unit)),
            ),
          ),
        ),
      ),
    );
  };
  /** @type {(origins: string[], energies: number[]) => {name: string, energy: number, rest?: boolean}[]} */
  const dearest = (origins, energies) => {
    const all = d3.sort(
      byOrigin(origins, energies)
        .map(({ name, amount, count }) => ({
          name: `${shown(name, 60)}${count > 1 ? ` (${count} tiles)` : ""}`,
          energy: amount,
        }))
        .filter((row) => row.energy > 0),
      (row) => -row.energy,
    );
    const rest = all.slice(8);
    return rest.length
      ? [
          ...all.slice(0, 8),
          {
            name: rest.length === 1 ? "1 other" : `${grouped(rest.length)} others`,
            energy: d3.sum(rest, (row) => row.energy),
            rest: true,
          },
        ]
      : all;
  };
  const kinds = ["computes", "copies"].map((name, i) => ({ name, energy: judgement.kinds[i] }));
  return el(
    "div",
    {},
    judgement.legal ? "" : el("p", {}, "Up to the illegal move."),
    el(
      "div",
      { class: "bars" },
      block(
        "by level",
        usedLevels(plan).map((i) => ({
          name: shown(machine.level[i].name, 30),
          energy: judgement.levels[i],
          colour: levelColour(i),
        })),
      ),
      judgement.kinds[1] > 0 ? block("by kind of move", kinds) : "",
      block("by tensor", dearest(graph.tensor_origin, judgement.tensors)),
      block("by op", dearest(graph.op_origin, judgement.ops)),
    ),
  );
}
