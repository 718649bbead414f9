// The page of `pebbler play`: levels, the position in the address, and what was reached before.

const REACHED = "pebbler-play-1"; // the key under which the best costs are kept in this browser

/**
 * The best cost reached per level, as far as this browser keeps it.
 * @returns {Record<string, unknown>}
 */
function readReached() {
  try {
    const found = JSON.parse(localStorage.getItem(REACHED) || "{}");
    return typeof found === "object" && found !== null ? found : {};
  } catch {
    return {};
  }
}

function startPlaying() {
  /** @type {PlayData} */
  const data = JSON.parse(section("data").textContent ?? "");
  const levels = data.levels,
    select = el("select", { "aria-label": "Puzzle" });
  const root = section("play-view");
  let current = 0;
  const reached = readReached();
  const titles = () =>
    levels.map((level, i) => {
      const best = reached[level.name],
        done = typeof best === "number" && level.optimum !== null && best <= level.optimum * (1 + 1e-9);
      const mark = done ? " ✓" : typeof best === "number" ? ` (${brief(best)})` : "";
      return el("option", { value: i, selected: i === current }, `${i + 1}. ${shown(level.title, 60)}${mark}`);
    });
  /** @param {HandGame} game */
  const fragment = (game) => `#level=${encodeURIComponent(game.level.name)}&check=${game.check}&moves=${game.code}`;
  const view = new HandView(root, {
    link: (game) => location.href.split("#")[0] + fragment(game),
    changed: (game) => {
      try {
        history.replaceState(null, "", fragment(game));
      } catch {
        // a page inside another document has no address of its own
      }
      const best = reached[game.level.name];
      if (!game.finished || (typeof best === "number" && best <= game.spent)) return;
      reached[game.level.name] = game.spent;
      try {
        localStorage.setItem(REACHED, JSON.stringify(reached));
      } catch {
        // private windows keep nothing
      }
      select.replaceChildren(...titles());
    },
    next: null,
  });
  /** @param {number} i */
  const open = (i) => {
    current = i;
    view.options.next = i + 1 < levels.length ? () => open(i + 1) : null;
    view.load(levels[i]);
    select.replaceChildren(...titles());
  };
  const openLink = () => {
    const given = new URLSearchParams(location.hash.slice(1)),
      name = given.get("level");
    const i = levels.findIndex((level) => level.name === name);
    if (name === null || i < 0) {
      open(0);
      if (location.hash.length > 1 && name !== null) view.say(`The link is for puzzle ${JSON.stringify(shown(name, 40))}, which this page does not have.`, "bad"); // prettier-ignore
      return;
    }
    const code = given.get("moves") || "",
      check = given.get("check");
    open(i);
    if (check !== null && check !== view.game.check) {
      view.say("The link is for another game of this name; this one starts anew.", "bad");
      return;
    }
    const wrong = view.game.take(code);
    view.update();
    if (wrong !== null) view.say(`The link is damaged: ${shown(wrong, 200)}. The moves before that were kept.`, "bad");
  };
  select.addEventListener("change", () => open(Number(select.value)));
  window.addEventListener("hashchange", () => openLink());
  section("controls").append(...(levels.length > 1 ? [el("label", {}, "Puzzle ", select)] : []), themeButton());
  // Keys work wherever nothing else wants them.
  document.addEventListener("keydown", (event) => {
    if (event.target === document.body) view.pressed(event);
  });
  openLink();
  window.pebbler = { data, view, HandGame, OptimumSearch, judge, play, arenaOf, effects };
  document.documentElement.dataset.ready = "true";
}

function themeButton() {
  const button = el("button", { type: "button", "aria-label": "Switch between light and dark" }, "◐");
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  });
  return button;
}

startPlaying();
