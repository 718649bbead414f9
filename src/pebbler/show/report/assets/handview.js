// A game played by hand on the page: board, actions, costs, hints and the list of moves.

/** @type {{name: Action, text: string, key: string, title: string}[]} */
const ACTIONS = [
  { name: "compute", text: "Compute", key: "c", title: "Compute it: a red pebble (Enter or C)" },
  { name: "load", text: "Load", key: "l", title: "Load it: red beside blue (L)" },
  { name: "store", text: "Store", key: "s", title: "Store it: blue beside red (S)" },
  { name: "drop red", text: "Remove red", key: "d", title: "Take the red pebble away (D or Delete)" },
  { name: "drop blue", text: "Remove blue", key: "x", title: "Take the blue pebble away (X)" },
];
const SLICE = 2_000; // positions between two breaths of the page

class HandView {
  /**
   * `options.changed(game)` is called after every change; `options.next` leads to the next level, where there is one.
   * @param {HTMLElement} root
   * @param {HandOptions} [options]
   */
  constructor(root, options = {}) {
    this.options = options;
    /** @type {HandGame | null} */
    this.loaded = null;
    /** @type {OptimumSearch | null} */
    this.search = null;
    this.hinting = false;
    /** @type {ReturnType<typeof setTimeout> | null} */
    this.playing = null; // the move to come, while the game plays on
    this.board = new Board(
      (value) => this.clicked(value),
      () => this.showActions(),
    );
    /** @type {(text: string, title: string, act: () => void, more?: Attributes) => HTMLButtonElement} */
    const button = (text, title, act, more = {}) =>
      el("button", { type: "button", title, onclick: act, ...more }, text);
    this.about = el("p", { class: "about" });
    this.word = el("p", { class: "word", role: "status", "aria-live": "polite", "data-test": "word" });
    this.costs = el("div", { class: "costs", "data-test": "costs" });
    this.actions = el("div", { class: "actions", role: "toolbar", "aria-label": "Moves of the chosen node" });
    this.log = el("ol", { class: "log", "aria-label": "Moves so far", tabindex: 0 });
    this.buttons = {
      hint: button("Hint", "The next move of a cheapest plan from here (H); once more plays it", () => this.hint(), { class: "primary" }),
      play: button("Play on", "Play a cheapest plan from here (P)", () => this.toggle()),
      undo: button("Undo", "Take the last move back (Ctrl-Z)", () => this.step("undo")),
      redo: button("Redo", "Make it again (Ctrl-Shift-Z or Ctrl-Y)", () => this.step("redo")),
      restart: button("Restart", "Back to the start; Redo leads forward again", () => this.step("restart")),
      save: button("Save the game", "Save the moves as a plan file, for pebbler check", () => this.save()),
    }; // prettier-ignore
    const { link } = options,
      copy = link && button("Copy link", "Copy a link that holds this position", () => this.copyLink(link(this.game)));
    this.legend = el("div", { class: "legend" });
    this.root = el(
      "div",
      { class: "handplay" },
      el("div", { class: "table" }, this.board.element, this.actions, this.word, this.legend),
      el(
        "div",
        { class: "side" },
        this.about,
        this.costs,
        el("div", { class: "row" }, ...Object.values(this.buttons), copy),
        el("h3", {}, "Moves"),
        this.log,
      ),
    );
    root.append(this.root);
    this.root.addEventListener("keydown", (event) => this.pressed(event));
  }

  /** The game that is played. */
  get game() {
    return required(this.loaded, "a game");
  }

  /** @param {HandLevel} level */
  load(level) {
    this.pause();
    this.loaded = new HandGame(level);
    this.about.textContent = level.about;
    this.board.load(this.game);
    const { names } = this.game.arena;
    this.legend.replaceChildren(
      el("span", {}, el("span", { class: "mark red" }), `red pebble: in ${shown(names[0], 24)}`),
      el("span", {}, el("span", { class: "mark blue" }), `blue pebble: in ${shown(names[1], 24)}`),
      el("span", {}, el("span", { class: "mark ready" }), "can be computed now"),
      el("span", {}, el("span", { class: "mark open" }), "not computed yet"),
      el("span", {}, el("span", { class: "mark goal" }), "must have a pebble at the end"),
    );
    this.say("Click an empty node to compute it. A node with a pebble shows its moves below the board.");
    this.update();
  }

  /** @param {string} text */
  say(text, mood = "") {
    this.word.className = `word ${mood}`;
    this.word.textContent = text;
  }

  // Moves -----------------------------------------------------------------------------------------------------------

  /** @param {number} value */
  clicked(value) {
    const { present, graph } = this.game;
    if (!present[value] && graph.value_maker[value] >= 0) this.attempt("compute", value);
  }

  /**
   * @param {Action} action
   * @param {number | null} value
   */
  attempt(action, value) {
    if (value === null) {
      this.say("Choose a node first.", "bad");
      return;
    }
    const { graph } = this.game,
      name = shown(nodeNameOf(graph, value), 40);
    if (action === "compute" && graph.value_maker[value] < 0) {
      this.say(`${name} is given: nothing computes it.`, "bad");
      this.board.shake(value);
      return;
    }
    const move = moveOf(graph, action, value);
    // Where a tensor has several versions, copies and drops mean the one that is there.
    if (move.kind !== COMPUTE && !this.game.present[value]) {
      this.say(`Not allowed: ${name} has no pebble.`, "bad");
      this.board.shake(value);
      return;
    }
    this.make(move, value);
  }

  /**
   * @param {Move} move
   * @param {number} value
   */
  make(move, value) {
    const before = this.game.spent,
      word = this.game.make(move);
    if (word !== null) {
      this.say(`Not allowed: ${shown(this.game.inPebbles(word), 300)}.`, "bad");
      this.board.shake(value);
      return false;
    }
    const price = this.game.spent - before;
    this.say(`${this.describe(move)}: ${price ? `costs ${energyText(price, this.unit)}` : "free"}.`, "good");
    this.hinting = false;
    this.update();
    this.board.follow(value);
    return true;
  }

  get unit() {
    return this.game.graph.energy_unit;
  }

  /**
   * A move in words.
   * @param {Move} move
   */
  describe(move) {
    const { graph } = this.game,
      action = actionOf(move);
    if (action === "compute") return `Compute ${shown(graph.op_name[move.subject], 40)}`;
    const name = shown(graph.tensor_name[move.subject], 40);
    return { load: `Load ${name}`, store: `Store ${name}`, "drop red": `Remove red from ${name}`, "drop blue": `Remove blue from ${name}` }[action]; // prettier-ignore
  }

  /**
   * The value that a move is about: the one whose node is marked.
   * @param {Move} move
   */
  valueOf(move) {
    const { graph, present } = this.game;
    if (move.kind === COMPUTE) return row(graph.writes, move.subject)[0] ?? row(graph.reads, move.subject)[0];
    const versions = graph.value_tensor.flatMap((t, v) => (t === move.subject ? [v] : []));
    return versions.find((v) => present[v]) ?? versions[0];
  }

  /** @param {"undo" | "redo" | "restart"} what */
  step(what) {
    this.pause();
    if (this.game[what]() === false) this.say(what === "undo" ? "Nothing to undo." : "Nothing to redo.");
    else this.say({ undo: "Taken back.", redo: "Made again.", restart: "Back at the start." }[what]);
    this.hinting = false;
    this.update();
  }

  // What is shown ---------------------------------------------------------------------------------------------------

  update() {
    this.board.show();
    this.showActions();
    this.showLog();
    this.buttons.undo.disabled = !this.game.moves.length;
    this.buttons.restart.disabled = !this.game.moves.length;
    this.buttons.redo.disabled = !this.game.undone.length;
    if (this.options.changed) this.options.changed(this.game);
    this.lookAhead();
    this.showCosts();
    if (this.game.finished) this.congratulate();
  }

  showActions() {
    const value = this.board.chosen;
    if (value === null) {
      this.actions.replaceChildren(el("span", { class: "muted" }, "No node is chosen."));
      return;
    }
    const { graph, present } = this.game,
      given = graph.value_maker[value] < 0;
    const buttons = ACTIONS.filter((action) => !(given && action.name === "compute")).map((action) => {
      const absent = action.name !== "compute" && !present[value];
      const move = moveOf(graph, action.name, value),
        legal = !absent && this.game.wordOn(move) === null;
      const price = legal ? this.game.priceOf(move) : 0;
      return el(
        "button",
        {
          type: "button",
          title: action.title,
          class: legal ? "legal" : "illegal",
          "data-action": action.name,
          onclick: () => this.attempt(action.name, value),
        },
        action.text,
        legal && price ? el("small", {}, ` ${energyText(price, this.unit)}`) : null,
      );
    });
    this.actions.replaceChildren(el("strong", {}, shown(nodeNameOf(graph, value), 30)), ...buttons);
  }

  showLog() {
    const steps = this.game.judgement.steps;
    this.log.replaceChildren(
      ...this.game.moves.map((move, i) =>
        el("li", {}, this.describe(move), el("small", {}, steps[i] ? ` ${energyText(steps[i], this.unit)}` : "")),
      ),
    );
    this.log.scrollTop = this.log.scrollHeight;
  }

  showCosts() {
    const { game } = this,
      finish = game.finish(),
      { optimum } = game.level;
    const [held, room] = [game.used[0], game.arena.capacity[0]];
    const total = game.spent + (finish ? finish.cost : 0),
      most = Math.max(total, optimum ?? 0) || 1;
    /** @param {number} amount */
    const share = (amount) => `${(100 * amount) / most}%`;
    const words =
      game.finished || finish === null
        ? this.lookingWords(finish)
        : `From here ${energyText(finish.cost, this.unit)} more at ${finish.proven ? "the least" : "most"}: ${energyText(total, this.unit)} in all` +
          (optimum === null ? "." : total > optimum + 1e-9 * optimum ? `, ${energyText(total - optimum, this.unit)} above the optimum.` : ", the optimum."); // prettier-ignore
    this.costs.dataset.spent = String(game.spent);
    this.costs.dataset.finish = finish ? String(finish.cost) : "";
    this.costs.replaceChildren(
      el(
        "dl",
        {},
        el("div", {}, el("dt", {}, "Cost so far"), el("dd", {}, energyText(game.spent, this.unit))),
        el("div", {}, el("dt", {}, "Optimum"), el("dd", {}, optimum === null ? "not known" : energyText(optimum, this.unit))), // prettier-ignore
        el("div", {}, el("dt", {}, game.graph.unit === "pebble" ? "Red pebbles" : "Fast memory"), el("dd", {}, `${brief(held)} of ${brief(room)}`)),
      ),
      el(
        "div",
        { class: "track", "aria-hidden": "true" },
        el("div", { class: "spent", style: { width: share(game.spent) } }),
        finish ? el("div", { class: "ahead", style: { width: share(finish.cost) } }) : null,
        optimum === null ? null : el("div", { class: "goal", style: { left: share(optimum) } }),
      ),
      el("p", {}, words),
    );
  }

  /** @param {Finish | null} finish */
  lookingWords(finish) {
    if (this.game.finished) return "Finished.";
    if (finish === null && this.search) return "Looking for the cheapest way from here …";
    return "This position is too large to be solved on the page. Undo leads back to the plan that is known to be optimal.";
  }

  congratulate() {
    const { spent, level } = this.game,
      best = level.optimum !== null && spent <= level.optimum + 1e-9 * Math.abs(level.optimum);
    this.pause();
    const text = best
      ? `Finished at ${energyText(spent, this.unit)}: nobody can do better.`
      : `Finished at ${energyText(spent, this.unit)}${level.optimum === null ? "" : `; the optimum is ${energyText(level.optimum, this.unit)}`}.`;
    this.say(text, best ? "good" : "");
    if (this.options.next) this.word.append(" ", el("button", { type: "button", onclick: this.options.next }, "Next puzzle"));
  }

  // The cheapest way from here --------------------------------------------------------------------------------------

  lookAhead() {
    this.search = null;
    if (this.game.finish() || this.game.unsolved.has(this.game.key)) return;
    const search = this.game.search();
    if (!search) return;
    this.search = search;
    const work = () => {
      if (this.search !== search) return;
      if (!search.run(SLICE)) {
        setTimeout(work, 0);
        return;
      }
      this.search = null;
      if (typeof search.result === "object" && search.result !== null) {
        this.game.remember(search.result);
        const { level } = this.game;
        if (level.optimum === null && !this.game.moves.length) level.optimum = search.result.cost;
      } else this.game.unsolved.add(this.game.key);
      this.showCosts();
      if (this.hinting) this.showHint();
    };
    work();
  }

  hint() {
    const finish = this.game.finish();
    if (this.game.finished) {
      this.say("The game is finished. Restart it, or undo some moves.");
    } else if (this.hinting && finish) this.make(finish.moves[0], this.valueOf(finish.moves[0]));
    else {
      this.hinting = true;
      this.showHint();
    }
  }

  showHint() {
    const finish = this.game.finish();
    if (!finish) {
      this.say(this.lookingWords(null));
      return;
    }
    const move = finish.moves[0],
      value = this.valueOf(move);
    this.board.show(value);
    const sure = finish.proven ? "" : " It follows the optimal plan of the whole game; from here there may be a cheaper way.";
    this.say(`Hint: ${this.describe(move)}. Press Hint again to play it.${sure}`);
    this.word.dataset.hint = `${LETTERS[actionOf(move)]}${move.subject.toString(36)}`;
  }

  toggle() {
    if (this.playing !== null) {
      this.pause();
      return;
    }
    this.buttons.play.textContent = "Pause";
    const tick = () => {
      const finish = this.game.finish();
      if (this.game.finished || (!finish && !this.search)) {
        this.pause();
        return;
      }
      if (finish) this.make(finish.moves[0], this.valueOf(finish.moves[0]));
      if (this.playing !== null) this.playing = setTimeout(tick, this.game.graph.op_name.length > 60 ? 40 : 350);
    };
    this.playing = setTimeout(tick, 0);
  }

  pause() {
    if (this.playing === null) return;
    clearTimeout(this.playing);
    this.playing = null;
    this.buttons.play.textContent = "Play on";
  }

  // Keys ------------------------------------------------------------------------------------------------------------

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const key = event.key.toLowerCase(),
      control = event.ctrlKey || event.metaKey;
    const typing = event.target instanceof HTMLSelectElement || event.target instanceof HTMLInputElement;
    if (typing || event.altKey) return;
    if (control) {
      if (key !== "z" && key !== "y") return;
      this.step(key === "y" || event.shiftKey ? "redo" : "undo");
    } else if (!this.pressedPlain(key, event)) return;
    event.preventDefault();
  }

  /**
   * @param {string} key
   * @param {KeyboardEvent} event
   */
  pressedPlain(key, event) {
    const onBoard = event.target instanceof Element && event.target.closest(".board"),
      value = this.board.chosen;
    /** @type {Record<string, [dx: number, dy: number]>} */
    const arrows = { arrowleft: [-1, 0], arrowright: [1, 0], arrowup: [0, -1], arrowdown: [0, 1] };
    const action = ACTIONS.find((one) => one.key === key);
    if (onBoard && arrows[key]) this.board.focus(this.board.neighbour(value ?? 0, ...arrows[key]));
    else if (onBoard && (key === "enter" || key === " ")) this.attempt("compute", value);
    else if (onBoard && (key === "delete" || key === "backspace")) this.attempt("drop red", value);
    else if (action) this.attempt(action.name, value);
    else if (key === "h") this.hint();
    else if (key === "p") this.toggle();
    else return false;
    return true;
  }

  // Files and links -------------------------------------------------------------------------------------------------

  save() {
    const blob = new Blob([JSON.stringify(this.game.planFile())], { type: "application/json" });
    const link = el("a", { href: URL.createObjectURL(blob), download: "plan.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  /** @param {string} link */
  async copyLink(link) {
    try {
      await navigator.clipboard.writeText(link);
      this.say("The link is copied: it holds this position.");
    } catch {
      this.say("This browser lets no page copy. The address of this page holds the position as well.");
    }
  }
}
