// What readers expect of any page: keys, search, links to a place, a theme that is remembered.

const THEME = "pebbler-theme";

/** The button that switches between light and dark, and remembers it. */
function themeButton() {
  /**
   * @template T
   * @param {(storage: Storage) => T} act
   */
  const store = (act) => {
    try {
      return act(window.localStorage);
    } catch {
      return null; // a page in a frame, or a browser that forbids it: then nothing is remembered
    }
  };
  /** @param {"light" | "dark"} theme */
  const use = (theme) => {
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  };
  const kept = store((storage) => storage.getItem(THEME));
  if (kept === "light" || kept === "dark") use(kept);
  window
    .matchMedia("(prefers-color-scheme: dark)")
    .addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
  return el(
    "button",
    {
      type: "button",
      "aria-label": "Switch between light and dark",
      title: "Switch between light and dark",
      onclick: () => {
        const theme = isDark() ? "light" : "dark";
        use(theme);
        store((storage) => storage.setItem(THEME, theme));
      },
    },
    "◐",
  );
}

/** Links to a move of a plan: #plan=NAME&move=N. */
class PlaceLink {
  /**
   * `open(index of a plan or null, move or null)` goes there.
   * @param {ReportData} data
   * @param {(index: number | null, move: number | null) => void} open
   */
  constructor(data, open) {
    this.data = data;
    this.open = open;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    window.addEventListener("hashchange", () => this.follow());
  }

  /** Go where the address says, if it says so. */
  follow() {
    const wanted = new URLSearchParams(window.location.hash.slice(1));
    if (!wanted.has("plan") && !wanted.has("move")) return;
    const index = this.data.plans.findIndex((plan) => plan.name === wanted.get("plan")),
      move = Number.parseInt(wanted.get("move") ?? "", 10);
    this.open(index < 0 ? null : index, Number.isFinite(move) && move >= 0 ? move : null);
  }

  /**
   * Say in the address where the player is, so that it can be copied.
   * @param {PlanData} plan
   * @param {number} step
   */
  write(plan, step) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const place = new URLSearchParams({ plan: plan.name, move: String(step) });
      try {
        window.history.replaceState(null, "", `#${place}`);
      } catch {
        // A page in a frame of a notebook has no address of its own.
      }
    }, 250);
  }
}

/** Looks for ops and tensors by name; Enter goes to the move. */
class Search {
  /** @param {Player} player */
  constructor(player) {
    this.player = player;
    /** @type {{name: string, what: string, step: number}[]} */
    this.results = [];
    this.at = 0;
    this.input = el("input", {
      type: "search",
      "aria-label": "Name of an op or tensor",
      placeholder: "Name of an op or tensor",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.list(),
      onkeydown: (event) => this.key(event),
    });
    this.found = el("ul", { role: "listbox", "aria-label": "Found" });
    this.box = el("dialog", { class: "search", "aria-label": "Search" }, this.input, this.found);
    this.box.addEventListener("click", (event) => {
      if (event.target === this.box) this.box.close();
    });
    document.body.append(this.box);
  }

  open() {
    if (this.box.open) return;
    this.input.value = "";
    this.list();
    this.box.showModal();
    this.input.focus();
  }

  /**
   * Ops and tensors whose names contain what was typed: {name, what, step}, `step` being the next move that has to do with them.
   * @param {string} words
   */
  matches(words) {
    const { graph, timeline, step } = this.player,
      wanted = words.trim().toLowerCase(),
      { kind, subject } = timeline.moves,
      { reads, writes } = effects(graph);
    /** @param {(move: number) => boolean} touches */
    const next = (touches) => {
      let first = -1;
      for (let i = 0; i < timeline.length; i++) {
        if (!touches(i)) continue;
        if (i + 1 > step) return i + 1;
        if (first < 0) first = i + 1;
      }
      return first;
    };
    /** @type {{name: string, what: string, step: number}[]} */
    const found = [];
    /** @type {(name: string, what: string, touches: (move: number) => boolean) => void} */
    const take = (name, what, touches) => {
      if (found.length < 12 && name.toLowerCase().includes(wanted)) found.push({ name, what, step: next(touches) });
    };
    graph.op_name.forEach((name, o) => take(name, "op", (i) => kind[i] === COMPUTE && subject[i] === o));
    const ops = found.splice(0, 8);
    graph.tensor_name.forEach((name, t) => {
      /** @param {number} o */
      const touched = (o) => [...reads[o], ...writes[o]].some((v) => graph.value_tensor[v] === t);
      take(name, `${graph.tensor_kind[t]}, ${grouped(graph.tensor_size[t])} ${graph.unit}`, (i) =>
        kind[i] === COMPUTE ? touched(subject[i]) : subject[i] === t,
      );
    });
    return [...ops, ...found].slice(0, 12);
  }

  list() {
    this.results = this.matches(this.input.value);
    this.at = 0;
    this.draw();
  }

  draw() {
    this.found.replaceChildren(
      ...this.results.map((result, i) =>
        el(
          "li",
          { role: "option", "aria-selected": String(i === this.at), onclick: () => this.go(i) },
          el("span", {}, shown(result.name, 60)),
          el(
            "span",
            { class: "muted" },
            `${result.what}, ${result.step < 0 ? "not in this plan" : `move ${grouped(result.step)}`}`,
          ),
        ),
      ),
      ...(this.results.length ? [] : [el("li", { class: "muted" }, "No op or tensor has this in its name.")]),
    );
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by && this.results.length) {
      this.at = (this.at + by + this.results.length) % this.results.length;
      this.draw();
    } else if (event.key === "Enter") this.go(this.at);
    else return;
    event.preventDefault();
  }

  /** @param {number} i */
  go(i) {
    const result = this.results[i];
    if (!result || result.step < 0) return;
    this.box.close();
    this.player.goTo(result.step);
    section("player").scrollIntoView();
  }
}

const KEYS = [
  ["Space", "play, pause"],
  ["← →", "one move back, on (with Shift: ten)"],
  ["Home, End", "to the start, to the end"],
  ["/", "search an op or tensor"],
  ["Ctrl Z", "undo a change of the order"],
  ["?", "this list"],
];

/**
 * Keys for the whole page. They play only while the player is in sight, and never while something is typed.
 * @param {HTMLElement} root
 * @param {Player} player
 * @param {Search} search
 */
function listenToKeys(player, search, root) {
  const help = el(
    "dialog",
    { class: "search", "aria-label": "Keys" },
    el(
      "table",
      {},
      el(
        "tbody",
        {},
        ...KEYS.map(([key, words]) => el("tr", {}, el("th", { scope: "row" }, key), el("td", {}, words))),
      ),
    ),
    el("form", { method: "dialog" }, el("button", {}, "Close")),
  );
  document.body.append(help);
  const seen = () => {
    const box = root.getBoundingClientRect();
    return box.top < window.innerHeight && box.bottom > 0;
  };
  /** @type {Record<string, (event: KeyboardEvent) => void>} */
  const acts = {
    " ": () => player.toggle(),
    ArrowLeft: (event) => player.goTo(player.step - (event.shiftKey ? 10 : 1)),
    ArrowRight: (event) => player.goTo(player.step + (event.shiftKey ? 10 : 1)),
    Home: () => player.goTo(0),
    End: () => player.goTo(Infinity),
  };
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (target instanceof Element && target.closest("input:not([type=range]), textarea, select")) return;
    const command = event.ctrlKey || event.metaKey;
    if (command && key.toLowerCase() === "z" && !event.shiftKey) player.back();
    else if (command || event.altKey) return;
    else if (key === "/") search.open();
    else if (key === "?") help.showModal();
    else if (acts[key] && seen()) {
      // A focused button or slider answers to these keys itself.
      if (
        target instanceof Element &&
        target.closest("button, a, summary, input, .memory") &&
        (key === " " || target.closest("input, .memory"))
      )
        return;
      acts[key](event);
    } else return;
    event.preventDefault();
  });
  return [
    el("button", { type: "button", title: "Search an op or tensor (/)", onclick: () => search.open() }, "Search"),
    el("button", { type: "button", title: "Keys (?)", "aria-label": "Keys", onclick: () => help.showModal() }, "?"),
  ];
}
