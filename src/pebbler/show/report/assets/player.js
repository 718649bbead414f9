// The player: step, play and scrub through the moves; reorder them and see legality and energy at once.

const WHOLE_SECONDS = 20; // for a plan from its first move to its last, unless a speed is chosen

class Player {
  /**
   * `changed` hears of other moves, `moved` of every step.
   * @param {HTMLElement} root
   * @param {ReportData} data
   * @param {{changed: () => void, moved: (step: number) => void}} handlers
   */
  constructor(root, data, handlers) {
    this.data = data;
    this.handlers = handlers;
    this.plan = data.plans[0];
    this.graph = data.graphs[this.plan.graph];
    this.given = this.timeline = timelineOf(data, this.plan);
    /** @type {number[]} */
    this.order = []; // the place of each move among those of the plan as given
    /** @type {number[][]} */
    this.history = [];
    this.step = 0;
    /** @type {number | null} */
    this.timer = null;
    this.stage = new Stage({
      op: (op) => this.findOp(op),
      move: (i) => this.goTo(i + 1),
      mode: () => this.drawLegend(),
    });
    this.schedule = new Schedule({
      select: (i) => this.goTo(i + 1),
      move: (from, to) => this.reorder(from, to),
      play: () => this.toggle(),
    });
    /**
     * A button with words is called by them; one with a sign only needs a name.
     * @type {(text: string, label: string, act: () => void, more?: Attributes) => HTMLButtonElement}
     */
    const button = (text, label, act, more = {}) =>
      el(
        "button",
        { type: "button", "aria-label": /[a-z]/i.test(text) ? null : label, title: label, onclick: act, ...more },
        text,
      );
    this.playButton = button("▶ Play", "Play the moves", () => this.toggle(), { class: "primary" });
    this.slider = el("input", {
      type: "range",
      min: 0,
      value: 0,
      "aria-label": "Moves done",
      oninput: () => this.goTo(Number(this.slider.value)),
    });
    this.speed = el(
      "select",
      { "aria-label": "Speed" },
      el("option", { value: 0, selected: true }, `all in ${WHOLE_SECONDS} s`),
      ...[1, 4, 20, 200].map((rate) => el("option", { value: rate }, `${plural(rate, "move")}/s`)),
    );
    this.now = el("div", { class: "now", "aria-live": "polite", "data-test": "now" });
    this.meters = el("div", { class: "meters" });
    this.running = new RunningEnergy((step) => this.goTo(step));
    this.live = el("div", { class: "live", "aria-live": "polite", "data-test": "live" });
    this.along = el("input", { type: "checkbox", id: "along", checked: true });
    this.alongLabel = el("label", { for: "along" }, "take its copies and drops along");
    this.undo = button("Undo", "Undo the last change", () => this.back());
    this.reset = button("Back to the plan", "Back to the plan as it was given", () => this.load(this.plan));
    this.save = button("Save as a plan", "Save the moves as a plan file, for pebbler check", () => this.download());
    this.banner = el("div", { role: "alert" });
    this.legend = el("div", { class: "legend" });
    root.append(
      this.banner,
      el(
        "div",
        { class: "player" },
        el(
          "div",
          {},
          el(
            "div",
            { class: "transport" },
            button("|◀", "To the start", () => this.goTo(0)),
            button("◀", "One move back", () => this.goTo(this.step - 1)),
            this.playButton,
            button("▶", "One move on", () => this.goTo(this.step + 1), { "data-test": "next" }),
            button("▶|", "To the end", () => this.goTo(Infinity)),
            this.slider,
            this.speed,
          ),
          this.stage.element,
          this.legend,
          this.now,
          this.meters,
          this.running.element,
        ),
        el(
          "div",
          { class: "schedule" },
          el(
            "div",
            { class: "head" },
            el("h3", {}, "Moves"),
            el("p", {}, "Drag ⠿, or select a move and press Alt with ↑ or ↓, to try another order."),
          ),
          this.schedule.list,
          el(
            "div",
            { class: "foot" },
            el(
              "div",
              { class: "row" },
              button("↑ Earlier", "Move the selected one earlier", () => this.nudge(-1)),
              button("↓ Later", "Move the selected one later", () => this.nudge(1)),
              this.undo,
              this.reset,
              this.save,
            ),
            el("div", { class: "row" }, this.along, this.alongLabel),
            this.live,
          ),
        ),
      ),
    );
  }

  /** @param {PlanData} plan */
  load(plan) {
    this.plan = plan;
    this.graph = this.data.graphs[plan.graph];
    this.given = timelineOf(this.data, plan);
    this.order = plan.kind.map((_, i) => i);
    this.history = [];
    this.stage.load(this.graph);
    this.drawLegend();
    const explicit = this.given.arena.management === "explicit";
    this.along.hidden = this.alongLabel.hidden = !explicit;
    this.useTimeline(this.given);
    // An illegal plan opens at its illegal move: in the state before it, with the reason.
    const { legal, move } = this.given.judgement;
    this.goTo(legal ? 0 : move === null ? this.given.judgement.played : move - 1, true);
  }

  /** @param {Timeline} timeline */
  useTimeline(timeline) {
    this.timeline = timeline;
    this.slider.max = String(timeline.length);
    this.schedule.load(timeline.length, (i) => this.describe(i));
    this.running.show(timeline, this.given);
    const { judgement } = timeline,
      edited = timeline !== this.given,
      unit = this.graph.energy_unit;
    this.undo.disabled = this.reset.disabled = !edited;
    /** @type {(Node | string)[]} */
    const notes = [];
    if (edited) {
      const legal = judgement.legal;
      notes.push(
        el("strong", { class: legal ? "good" : "bad" }, legal ? "Your order is legal. " : "Your order is illegal. "),
      );
      if (legal) {
        notes.push(`${energyText(judgement.energy, unit)}`);
        if (this.given.judgement.legal)
          notes.push(
            `: ${comparedTo(judgement.energy, this.given.judgement.energy)} ` +
              `the plan (${energyText(this.given.judgement.energy, unit)}).`,
          );
      } else notes.push(shown(judgement.error ?? "", 600));
    } else
      notes.push(
        judgement.legal
          ? `The plan as given: ${energyText(judgement.energy, unit)}, legal.`
          : "The plan as given is illegal; repair it here, or read why above.",
      );
    this.live.replaceChildren(...notes);
    this.live.dataset.energy = String(judgement.energy);
    this.live.dataset.legal = String(judgement.legal);
    // Only the plan as given has a banner: one that came and went while ops are dragged would shift the page under the pointer.
    const first = this.given.judgement;
    this.banner.className = first.legal ? "" : "banner";
    this.banner.replaceChildren(
      ...(first.legal ? [] : [el("strong", {}, "This plan is illegal: "), shown(first.error ?? "", 600)]),
    );
    this.handlers.changed();
  }

  /** @param {number} i */
  describe(i) {
    const { moves, judgement, arena } = this.timeline,
      kind = moves.kind[i],
      subject = moves.subject[i];
    const names = arena.names,
      explicit = arena.management === "explicit";
    const cost = i < judgement.steps.length ? judgement.steps[i] : null;
    const unit = this.graph.energy_unit,
      paid = cost === null ? "" : cost === 0 ? "free" : energyText(cost, unit).replace(/\.(\d)\d\d /, ".$1 ");
    if (kind === COMPUTE) {
      const where = explicit && moves.level[i] ? ` → ${names[moves.level[i]]}` : "";
      return { kind: "compute", text: `${shown(this.graph.op_name[subject], 60)}${where}`, cost: paid };
    }
    const name = shown(this.graph.tensor_name[subject], 60);
    return kind === COPY
      ? { kind: "copy", text: `copy ${name}: ${names[moves.level[i]]} → ${names[moves.to[i]]}`, cost: paid }
      : { kind: "drop", text: `drop ${name} from ${names[moves.level[i]]}`, cost: paid };
  }

  /**
   * @param {number} step
   * @param {boolean} [quiet]  the reader has not asked for it
   */
  goTo(step, quiet = false) {
    const { timeline } = this,
      { judgement } = timeline;
    // What comes after an illegal move is undefined, so nobody gets there.
    const last = judgement.legal ? timeline.length : judgement.move === null ? judgement.played : judgement.move - 1;
    const wanted = Math.max(0, Math.min(step, timeline.length));
    this.step = Math.min(wanted, last);
    const wrong = judgement.legal || judgement.move === null ? -1 : judgement.move - 1,
      blocked = wrong >= 0 && (wanted > last || (quiet && this.step === last)),
      move = blocked ? wrong : this.step - 1;
    this.slider.value = String(this.step);
    this.schedule.select(move, this.step, wrong);
    this.stage.show({ timeline, step: this.step, move, illegal: blocked });
    this.tell(move, blocked);
    this.drawMeters();
    this.running.mark(this.step);
    this.handlers.moved(this.step);
    if (wanted > last || this.step === timeline.length) this.pause();
  }

  /**
   * @param {number} move
   * @param {boolean} blocked
   */
  tell(move, blocked) {
    const { timeline, graph } = this,
      unit = graph.energy_unit,
      total = timeline.judgement.energy;
    const priced = timeline.judgement.steps.length > 0 || timeline.length === 0;
    const so = priced
      ? `${energyText(timeline.energyAt(this.step), unit)}${timeline.judgement.legal ? ` of ${energyText(total, unit)}` : ""} so far`
      : "an illegal order has no price under this machine's rule";
    let text = `Before the first of ${plural(timeline.length, "move")}.`;
    if (move >= 0) {
      const { text: what, cost } = this.describe(move);
      text = blocked
        ? `Move ${move + 1} of ${grouped(timeline.length)}, ${what}, is illegal.`
        : `Move ${move + 1} of ${grouped(timeline.length)}: ${what}${cost ? `, ${cost}` : ""}.`;
    }
    this.now.replaceChildren(el("strong", {}, text), ` ${so}.`);
    this.now.dataset.step = String(this.step);
  }

  drawMeters() {
    const { arena } = this.timeline,
      used = this.timeline.used(this.step),
      needed = arena.names.map((_, i) => d3.sum(this.timeline.places(this.step), (place) => (place ? place[i] : 0))),
      most = d3.max(used) || 1;
    this.meters.replaceChildren(
      ...this.shownLevels().map((i) => {
        const name = arena.names[i],
          bounded = arena.capacity[i] < 2 ** 61,
          share = used[i] / (bounded ? arena.capacity[i] : most);
        const dead = used[i] - needed[i];
        return el(
          "div",
          {
            class: "meter",
            "data-units": used[i],
            "data-needed": needed[i],
            title:
              dead > 0 ? `${grouped(dead)} of ${grouped(used[i])} are left from values that nothing needs now` : null,
          },
          el(
            "div",
            { class: "words" },
            swatch(levelColour(i), shown(name, 24)),
            el("span", {}, bounded ? `${brief(used[i])} / ${brief(arena.capacity[i])}` : brief(used[i])),
          ),
          el(
            "div",
            { class: "track" },
            el("div", {
              class: "fill",
              style: {
                width: `${Math.min(100, share * 100 * (needed[i] / used[i] || 0))}%`,
                background: levelColour(i),
              },
            }),
            el("div", {
              class: "fill left-over",
              style: { width: `${Math.min(100, share * 100 * (dead / used[i] || 0))}%`, background: levelColour(i) },
            }),
          ),
        );
      }),
    );
  }

  /** The levels that have a meter: all of them where there are few, otherwise those that the plan uses. */
  shownLevels() {
    const { names } = this.given.arena;
    return names.length < MANY_LEVELS ? names.map((_, i) => i) : usedLevels(this.plan);
  }

  drawLegend() {
    const { graph } = this,
      { names } = this.given.arena,
      used = usedLevels(this.plan);
    /** @type {(words: string) => (level: number) => HTMLElement} */
    const level = (words) => (i) => swatch(levelColour(i), `${words} ${shown(names[i], 24)}`);
    if (this.stage.mode !== "graph") {
      const computes = this.given.moves.kind.filter((kind) => kind === COMPUTE).length,
        again =
          computes > new Set(this.given.moves.subject.filter((_, i) => this.given.moves.kind[i] === COMPUTE)).size;
      this.legend.replaceChildren(
        ...used.map(level("reads mostly from")),
        ...(again && this.stage.mode === "order"
          ? [el("span", {}, el("span", { class: "swatch again" }), "run again")]
          : []),
      );
      return;
    }
    /** @type {(kind: string, words: string) => HTMLElement} */
    const line = (kind, words) => {
      const svg = d3.create("svg").attr("width", 30).attr("height", 8);
      svg.append("path").attr("class", `edge ${kind}`).attr("d", "M0,4L30,4");
      return el("span", {}, svg.node(), words);
    };
    const { readers } = effects(graph),
      hazards = new Set();
    graph.value_destroyer.forEach((by, v) => {
      if (by < 0) return;
      if (readers[v].some((o) => o !== by)) hazards.add("war");
      if (graph.value_maker[v] >= 0) hazards.add("waw");
    });
    this.legend.replaceChildren(
      ...used.map(level("in")),
      line("raw", "reads (RAW)"),
      ...(hazards.has("war") ? [line("war", "must wait for a reader (WAR)")] : []),
      ...(hazards.has("waw") ? [line("waw", "must wait for a writer (WAW)")] : []),
    );
  }

  // Playing ---------------------------------------------------------------------------------------------------------

  toggle() {
    if (this.timer !== null) {
      this.pause();
      return;
    }
    if (this.step >= this.timeline.length) this.goTo(0);
    this.playButton.textContent = "⏸ Pause";
    this.now.setAttribute("aria-live", "off"); // a screen reader could not keep up
    let before = performance.now();
    /** @param {number} time */
    const tick = (time) => {
      if (this.timer === null) return;
      const rate = Number(this.speed.value) || this.timeline.length / WHOLE_SECONDS,
        count = Math.floor(((time - before) * rate) / 1000);
      if (count > 0) {
        before = time;
        this.goTo(this.step + count);
      }
      if (this.timer !== null) this.timer = requestAnimationFrame(tick);
    };
    this.timer = requestAnimationFrame(tick);
  }

  pause() {
    if (this.timer === null) return;
    cancelAnimationFrame(this.timer);
    this.timer = null;
    this.playButton.textContent = "▶ Play";
    this.now.setAttribute("aria-live", "polite");
  }

  // Reordering ------------------------------------------------------------------------------------------------------

  /**
   * The moves that go with the one at `i`: a compute takes the copies right before it and the drops right after it.
   * @param {number} i
   */
  block(i) {
    const { kind } = this.timeline.moves;
    let first = i,
      last = i;
    if (this.timeline.arena.management === "explicit" && this.along.checked && kind[i] === COMPUTE) {
      while (first > 0 && kind[first - 1] === COPY) first--;
      while (last + 1 < kind.length && kind[last + 1] === DROP) last++;
    }
    return [first, last];
  }

  /**
   * Move what is at `from` so that it stands at `to`.
   * @param {number} from
   * @param {number} to
   */
  reorder(from, to) {
    this.pause();
    const [first, last] = this.block(from),
      count = last - first + 1;
    if (to >= first && to <= last) to = to < from ? first - 1 : last + 1;
    if (to < 0 || to >= this.order.length) return;
    this.history.push(this.order);
    const order = this.order.slice(),
      taken = order.splice(first, count);
    const at = to > last ? to - count + 1 : to;
    order.splice(at, 0, ...taken);
    this.use(order);
    this.goTo(at + (from - first) + 1);
  }

  /** @param {number[]} order */
  use(order) {
    this.order = order;
    const same = order.every((place, i) => place === i);
    this.useTimeline(same ? this.given : new Timeline(this.graph, this.plan, permuteMoves(this.given.moves, order)));
  }

  /** @param {number} by */
  nudge(by) {
    if (this.schedule.index >= 0) this.reorder(this.schedule.index, this.schedule.index + by);
  }

  back() {
    const before = this.history.pop();
    if (!before) return;
    this.use(before);
    this.goTo(this.step);
  }

  /** @param {number} op */
  findOp(op) {
    const at = this.timeline.moves.kind.findIndex(
      (kind, i) => kind === COMPUTE && this.timeline.moves.subject[i] === op,
    );
    if (at >= 0) this.goTo(at + 1);
  }

  download() {
    saveText("plan.json", "application/json", JSON.stringify(planFile(this.graph, this.plan, this.timeline)));
  }
}
