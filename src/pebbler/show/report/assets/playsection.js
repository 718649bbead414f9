// The report's last section where a plan is of a small pebble game: the same game by hand.

/**
 * Add the section, and its link among the views, for the first plan whose game can be solved on the page.
 * @param {ReportData} data
 */
function showPlay(data) {
  const plan = data.plans.find(
    (one) => data.graphs[one.graph].op_name.length > 0 && isRedBlue(data.graphs[one.graph], arenaOf(one)),
  );
  if (!plan) return;
  const graph = data.graphs[plan.graph],
    optimal = plan.status === "optimal" && plan.judgement.legal;
  const root = el("div", { id: "play-view" });
  elementAt("nav.contents", HTMLElement).append(el("a", { href: "#play" }, "Play"));
  elementAt("main", HTMLElement).append(el("section", { "aria-labelledby": "play" }, el("h2", { id: "play" }, "Play it by hand"), root));
  const view = new HandView(root);
  view.load({
    name: "plan",
    title: plan.name,
    about:
      "The plan's game, from its start: every move is judged by the referee's rules, and Hint shows the next move of a cheapest plan.",
    graph,
    machine: plan.machine,
    capacity: plan.capacity,
    steady: false,
    start: plan.start,
    optimum: optimal ? plan.judgement.energy : null,
    plan: optimal ? { kind: plan.kind, subject: plan.subject, level: plan.level, to: plan.to } : null,
  });
}
