// Puts the page together. Sections below the first are drawn one by one when the browser is idle, so that the page opens at once.

/**
 * What the page shows; long data is packed.
 * @returns {Promise<ReportData>}
 */
async function readData() {
  const node = elementAt("#data", HTMLScriptElement),
    text = node.textContent ?? "";
  if (node.type === "application/json") return JSON.parse(text);
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)),
    stream = new Blob([packed]).stream().pipeThrough(new window.DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function start() {
  const data = await readData();
  const select = el("select", {}, ...data.plans.map((plan, i) => el("option", { value: i }, shown(plan.name, 60))));
  section("controls").append(...(data.plans.length > 1 ? [el("label", {}, "Plan shown:", select)] : []), themeButton());

  data.graphs.forEach(useStepNames);
  data.graphs.forEach(effects);
  const cost = costWord(data.graphs[data.plans[0].graph].energy_unit); // a plan's costs may be times
  elementAt("[data-cost=nav]", HTMLElement).textContent = capital(cost);
  const summary = section("summary-view");
  showGlance(summary, data, data.plans[0]);
  /** @type {Player | null} */
  let made = null;
  /** The player, which all that comes after it needs. */
  const player = () => required(made, "the player");
  /** @type {ReturnType<typeof showStep>} */
  let step = null;
  /** @type {Memory | null} */
  let memory = null;
  /** @type {DistanceView | null} */
  let distances = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pending;
  useLevelColours(1 + (d3.max(data.plans, (plan) => Math.max(...usedLevels(plan))) ?? 0));
  const tasks = [
    () => showEnergy(section("energy-view"), data, data.plans[0]),
    () => {
      made = new Player(section("player-view"), data, {
        changed: () => {
          clearTimeout(pending);
          pending = setTimeout(() => {
            if (memory) memory.show(player().timeline, player().plan);
            if (distances) distances.show(player().timeline);
          }, 60);
        },
        moved: (step) => {
          if (memory) memory.mark(step);
          if (distances) distances.mark(step);
          if (document.documentElement.dataset.ready) place.write(player().plan, step);
        },
      });
      made.load(data.plans[0]);
      warnIfApart(data, made);
      section("controls").prepend(...listenToKeys(made, new Search(made), section("player-view")));
    },
    () => {
      step = showStep(data, (plan, at) => player().goTo(at));
      if (step) step.show(data.plans[0]);
    },
    () => {
      memory = new Memory(section("memory-view"), data, (plan, step) => {
        if (plan !== player().plan) choose(data.plans.indexOf(plan));
        player().goTo(step);
      });
      memory.show(player().timeline, player().plan);
    },
    () => {
      distances = addDistances((step) => player().goTo(step));
      distances.show(player().timeline);
    },
    () => showReuse(section("reuse-view"), data),
    () => showMisses(section("misses-view"), data, 0),
    () => showDiff(section("diff-view"), data),
    () => showLandscape(section("landscape-view"), data),
    () => showPlay(data),
    () => {
      place.follow();
      document.documentElement.dataset.ready = "true";
    },
  ];
  let done = 0;
  const VIEWS = ["energy", "player", "step", "memory", "distances", "reuse", "misses", "diff", "landscape", "play", "ready"]; // names for the browser's own profiler
  const next = () => {
    const task = tasks.shift();
    if (!task) return;
    task();
    performance.mark(VIEWS[done++]);
    setTimeout(next, 0);
  };
  /** @param {number} index */
  const choose = (index) => {
    select.value = String(index);
    showGlance(summary, data, data.plans[index]);
    player().load(data.plans[index]);
    if (step) step.show(data.plans[index]);
    showEnergy(section("energy-view"), data, data.plans[index]);
    showMisses(section("misses-view"), data, index);
  };
  const place = new PlaceLink(data, (index, move) => {
    if (index !== null && data.plans[index] !== player().plan) choose(index);
    if (move !== null) player().goTo(move);
  });
  select.addEventListener("change", () => choose(Number(select.value)));
  next();
  window.pebbler = {
    data,
    judge,
    arenaOf,
    Timeline,
    effects,
    livesOf,
    roomOf,
    sweepHeld,
    shelvesOf,
    timeMoves,
    heldFor,
    moduleRows,
    step: () => step && step.view,
    memory: () => memory,
    distances: () => distances,
    player: () => made,
    planFile,
  };
}

/**
 * The page has the referee's rules once more, for reordering; should they ever disagree, it says so.
 * @param {ReportData} data
 * @param {Player} player
 */
function warnIfApart(data, player) {
  const plan = data.plans[0],
    mine = player.given.judgement;
  const near = Math.abs(mine.energy - plan.judgement.energy) <= 1e-9 * Math.max(1, Math.abs(plan.judgement.energy));
  if (mine.legal === plan.judgement.legal && mine.move === plan.judgement.move && near) return;
  player.live.before(
    el(
      "div",
      { class: "banner" },
      "This page prices the plan otherwise than the referee did. Trust pebbler check, and please report it.",
    ),
  );
}

start();
