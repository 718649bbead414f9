// Puts the page together. Sections below the first are drawn one by one when the browser is idle, so that the page opens at once.

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const section = (id) => document.getElementById(id);
  const select = el("select", {}, ...data.plans.map((plan, i) => el("option", { value: i }, shown(plan.name, 60))));
  const theme = el("button", { type: "button", "aria-label": "Switch between light and dark" }, "◐");
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    document.dispatchEvent(new Event("themechange"));
  });
  window
    .matchMedia("(prefers-color-scheme: dark)")
    .addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
  section("controls").append(...(data.plans.length > 1 ? [el("label", {}, "Plan shown:", select)] : []), theme);

  data.graphs.forEach(effects);
  const summary = section("summary-view");
  showSummary(summary, data, data.plans[0]);
  let player = null,
    lifetimes = null,
    pending = null;
  const tasks = [
    () => {
      player = new Player(section("player-view"), data, (timeline) => {
        clearTimeout(pending);
        pending = setTimeout(() => {
          if (lifetimes) lifetimes.show(timeline);
        }, 60);
      });
      player.load(data.plans[0]);
      warnIfApart(data, player);
    },
    () => {
      lifetimes = new Lifetimes(section("lifetimes-view"));
      lifetimes.show(player.timeline);
    },
    () => showReuse(section("reuse-view"), data),
    () => showMisses(section("misses-view"), data, 0),
    () => showDiff(section("diff-view"), data),
    () => showLandscape(section("landscape-view"), data),
    () => showPlay(data),
    () => {
      document.documentElement.dataset.ready = "true";
    },
  ];
  let done = 0;
  const VIEWS = ["player", "lifetimes", "reuse", "misses", "diff", "landscape", "play", "ready"]; // names for the browser's own profiler
  const next = () => {
    const task = tasks.shift();
    if (!task) return;
    task();
    performance.mark(VIEWS[done++]);
    setTimeout(next, 0);
  };
  next();
  select.addEventListener("change", () => {
    const index = Number(select.value);
    showSummary(summary, data, data.plans[index]);
    player.load(data.plans[index]);
    showMisses(section("misses-view"), data, index);
  });
  window.pebbler = { data, judge, arenaOf, Timeline, effects, livesOf, roomOf, player: () => player, planFile };
}

/** The page has the referee's rules once more, for reordering; should they ever disagree, it says so. */
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
