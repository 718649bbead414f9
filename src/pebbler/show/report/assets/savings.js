// Where the energy goes: from program order to the plan, freedom by freedom, and by level, tensor and op.

/**
 * @param {HTMLElement} root
 * @param {ReportData} data
 * @param {PlanData} plan
 */
function showEnergy(root, data, plan) {
  const graph = data.graphs[plan.graph],
    unit = graph.energy_unit,
    { judgement } = plan;
  root.replaceChildren();
  const first = plan.savings.length > 1 ? plan.savings[0].energy : null,
    told = plan.savings.some((step) => step.energy !== first); // where nothing changes, there is nothing to show
  section("energy").textContent =
    first !== null && judgement.energy < first
      ? "Why it is cheaper"
      : `Where the ${costWord(unit)} goes`;
  if (told) root.append(...waterfall(plan, unit));
  if (judgement.legal || judgement.energy > 0) {
    const bars = energyBars(plan, graph, unit);
    root.append(told ? el("details", {}, el("summary", {}, "By level, tensor and op"), bars) : bars);
  } else root.append(el("p", {}, `An illegal order has no ${costWord(unit)} under this machine's rule.`));
  if (plan.bound !== null && plan.proof) root.append(...boundWords(plan.bound, plan.proof, unit));
  if (plan.source !== null && graph.name !== plan.source)
    root.append(
      el(
        "details",
        {},
        el("summary", {}, "How the graph was cut"),
        el(
          "p",
          {},
          `${shown(graph.name, 600)}: ${plural(graph.op_name.length, "op")}, ${plural(graph.tensor_name.length, "tensor")}.`,
        ),
      ),
    );
}

/**
 * The bound in words: what it counts, for which plans it holds, where its proof is written.
 * @param {number} bound
 * @param {ProofNote} proof
 * @param {string} unit
 */
function boundWords(bound, { words, scope, page }, unit) {
  return [
    el("h3", { id: "bound" }, "The lower bound"),
    el(
      "p",
      {},
      `No plan costs less than ${energyText(bound, unit)}. ${shown(words, 400)} ${scope} `,
      "The proof is in pebbler's documentation: ",
      el("code", {}, `docs/${page}`),
      ".",
    ),
  ];
}

const STEPS_WORDS =
  "Every bar is a schedule priced by the referee, with one freedom more than the bar above it. The schedules are this plan with " +
  "freedoms taken away; the best plan with those freedoms may be cheaper (pebbler solve --compare searches for it).";

/**
 * Schedules from program order to the plan, each with one freedom more; the bound as the floor.
 * @param {PlanData} plan
 * @param {string} unit
 */
function waterfall(plan, unit) {
  const steps = plan.savings,
    names = plan.machine.level.map((level) => level.name),
    known = steps.flatMap((step) => (step.energy === null ? [] : [{ ...step, energy: step.energy }])),
    levels = names.map((_, k) => k).filter((k) => known.some((step) => step.levels[k] > 0)), // that something is paid in
    most = d3.max(known, (step) => step.energy) || 1,
    { factor, name } = energyScale(most, unit),
    text = (/** @type {number} */ energy) =>
      (energy / factor).toLocaleString(
        "en",
        factor === 1 ? {} : { minimumFractionDigits: 3, maximumFractionDigits: 3 },
      ),
    before = steps.map((_, i) =>
      steps
        .slice(0, i)
        .map((step) => step.energy)
        .reduce((last, energy) => energy ?? last, null),
    ),
    changes = steps.map(({ energy }, i) => {
      const last = before[i];
      return energy === null || last === null ? null : energy - last;
    });
  /** @param {number} n */
  const signed = (n) => (n === 0 ? "no change" : `${n < 0 ? "−" : "+"}${text(Math.abs(n))}`);
  /** @param {number} width */
  const draw = (width) => {
    const narrow = width < 560,
      pitch = narrow ? 52 : 40,
      left = narrow ? 8 : Math.max(190, 24 + 7.2 * (d3.max(steps, (step) => Math.min(40, step.name.length)) ?? 0)),
      right = width - (narrow ? 8 : 150),
      height = steps.length * pitch + 52,
      x = d3.scaleLinear([0, most], [left, right]),
      svg = d3
        .create("svg")
        .attr("width", width)
        .attr("height", height)
        .attr("viewBox", [0, 0, width, height])
        .attr("class", "waterfall");
    steps.forEach((step, i) => {
      const y = i * pitch + (narrow ? 20 : 6),
        row = svg.append("g");
      row.append("title").text(step.words);
      const label = row
        .append("text")
        .attr("class", "name")
        .text(`${i ? "+ " : ""}${shown(step.name, 40)}`);
      if (narrow) label.attr("x", left).attr("y", y - 5);
      else
        label
          .attr("x", left - 10)
          .attr("y", y + 17)
          .attr("text-anchor", "end");
      const figures = row.append("text").attr("class", "figures");
      if (narrow)
        figures
          .attr("x", right)
          .attr("y", y - 5)
          .attr("text-anchor", "end");
      else figures.attr("y", y + 17);
      if (step.energy === null) {
        figures.text("does not fit this way");
        if (!narrow) figures.attr("x", left + 6);
        return;
      }
      let sum = 0;
      step.levels.forEach((part, k) => {
        row
          .append("rect")
          .attr("x", x(sum))
          .attr("y", y)
          .attr("width", Math.max(0, x(sum + part) - x(sum)))
          .attr("height", 24)
          .style("fill", levelColour(k))
          .append("title")
          .text(`${shown(names[k], 30)}: ${energyText(part, unit)}`);
        sum += part;
      });
      const by = changes[i],
        saved = by !== null && by < 0 ? before[i] : null; // what the schedule before it costs
      if (saved !== null)
        row
          .append("rect")
          .attr("class", "saved")
          .attr("x", x(step.energy))
          .attr("y", y + 0.5)
          .attr("width", x(saved) - x(step.energy))
          .attr("height", 23);
      if (!narrow) figures.attr("x", Math.max(x(step.energy), saved === null ? 0 : x(saved)) + 8);
      figures.append("tspan").style("font-weight", 600).text(text(step.energy));
      if (by !== null)
        figures
          .append("tspan")
          .attr("dx", 8)
          .attr("class", by < 0 ? "less" : by > 0 ? "more" : "")
          .text(signed(by));
    });
    const end = steps.length * pitch + (narrow ? 8 : 4);
    if (plan.bound !== null) {
      // Where labels stand above the bars, the line crosses bars only.
      const spans = narrow ? steps.map((_, i) => [i * pitch + 17, i * pitch + 47]) : [[2, end + 8]];
      for (const [y1, y2] of spans)
        svg
          .append("line")
          .attr("class", "floor")
          .attr("x1", x(plan.bound))
          .attr("x2", x(plan.bound))
          .attr("y1", y1)
          .attr("y2", y2);
      // The label stands beside the line where it fits, otherwise as far right as the chart goes.
      const words = `proven: no plan costs less than ${text(plan.bound)}`,
        wide = 6.5 * words.length,
        after = x(plan.bound) + 4 + wide <= width,
        before = !after && x(plan.bound) - 4 - wide >= 0;
      svg
        .append("text")
        .attr("class", "floor")
        .attr("x", after ? x(plan.bound) + 4 : before ? x(plan.bound) - 4 : width)
        .attr("y", end + 14)
        .attr("text-anchor", after ? "start" : "end")
        .text(words);
    }
    svg
      .append("text")
      .attr("class", "unit")
      .attr("x", left)
      .attr("y", end + 36)
      .text(`${costWord(unit)} in ${name}, by the level that it is paid in`);
    return svg.node();
  };
  return [
    el(
      "div",
      { class: "legend" },
      ...levels.map((k) => swatch(levelColour(k), shown(names[k], 24))),
      el("span", {}, el("span", { class: "swatch saved" }), "saved by the step"),
    ),
    figure(
      `From program order to the plan: ${known.map((step) => `${step.name} ${text(step.energy)}`).join(", ")} ${name}`,
      draw,
      null,
      asTable(
        ["schedule", `${costWord(unit)} (${unit})`, "change", ...levels.map((k) => shown(names[k], 24)), "what it is"],
        () =>
          steps.map((step, i) => [
            step.name,
            step.energy === null ? "does not fit" : grouped(step.energy),
            orDash(changes[i]),
            ...levels.map((k) => (step.energy === null ? "–" : grouped(step.levels[k]))),
            step.words,
          ]),
      ),
    ),
    el(
      "ol",
      { class: "steps" },
      ...steps.map((step) => el("li", {}, el("strong", {}, step.name), `: ${step.words}`)),
    ),
    ...(steps.length > 2 ? [el("p", { class: "muted" }, STEPS_WORDS)] : []),
  ];
}
