// Memory over time: what each level holds, stacked up under its capacity, in the plan shown and in the one it is compared with.

class Memory {
  /**
   * @param {HTMLElement} root
   * @param {ReportData} data
   * @param {(plan: PlanData, step: number) => void} open  goes to a move of a plan
   */
  constructor(root, data, open) {
    this.data = data;
    this.open = open;
    /** @type {[number, number] | null} */
    this.domain = null; // the part of the axis that is shown; null: all of it
    /** @type {[number, number]} */
    this.whole = [0, 1];
    this.plan = data.plans[0];
    this.timeline = timelineOf(data, this.plan);
    /** @type {{plan: PlanData, timeline: Timeline}[]} */
    this.strips = [];
    /** @type {MemoryPlot | null} */
    this.plotted = null;
    this.cursor = el("div", { class: "cursors" });
    this.width = 0;
    this.step = 0;
    this.axis = el(
      "select",
      { onchange: () => this.zoomTo(null) },
      el("option", { value: "energy" }, "energy spent"),
      el("option", { value: "moves" }, "moves done"),
    );
    this.other = el("select", { onchange: () => this.show(this.timeline, this.plan) });
    this.otherLabel = el("label", {}, "Compared with", this.other);
    this.axisLabel = el("label", {}, "Along", this.axis);
    this.holder = el("div", { class: "memory", role: "img", tabindex: "0" });
    this.legend = el("div", { class: "legend" });
    this.words = el("figcaption", {});
    this.files = el("div", {});
    root.append(
      el(
        "div",
        { class: "row" },
        this.otherLabel,
        this.axisLabel,
        labelled("−", "Zoom out", () => this.zoomBy(1 / 1.6)),
        labelled("+", "Zoom in", () => this.zoomBy(1.6)),
        labelled("Fit", "Show all of it", () => this.zoomTo(null)),
      ),
      this.legend,
      el("figure", {}, this.holder, this.words, this.files),
    );
    this.offer();
    this.listen();
    redrawn(this);
  }

  listen() {
    this.holder.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey || event.altKey)) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, this.along(event));
    });
    this.holder.addEventListener("pointermove", (event) => {
      const found = event.pointerType === "touch" ? null : this.at(event);
      if (found) readout.show(event, ...this.story(found));
      else readout.hide();
    });
    this.holder.addEventListener("pointerleave", () => readout.hide());
    this.holder.addEventListener("click", (event) => {
      const found = this.at(event);
      if (found) this.open(found.strip.plan, found.step);
    });
    this.holder.addEventListener("keydown", (event) => {
      const by = ARROWS[event.key];
      if (event.key === "+" || event.key === "=") this.zoomBy(1.6);
      else if (event.key === "-") this.zoomBy(1 / 1.6);
      else if (by && this.domain) {
        const shift = 0.2 * by * (this.domain[1] - this.domain[0]);
        this.zoomTo([this.domain[0] + shift, this.domain[1] + shift]);
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /**
   * Show the plan of the player as it is now, its moves perhaps reordered.
   * @param {Timeline} timeline
   * @param {PlanData} plan
   */
  show(timeline, plan) {
    const fresh = plan !== this.plan;
    this.timeline = timeline;
    this.plan = plan;
    if (fresh) this.offer();
    const others = this.other.value === "" || this.otherLabel.hidden ? [] : [this.data.plans[Number(this.other.value)]];
    this.strips = [...others.map((one) => ({ plan: one, timeline: timelineOf(this.data, one) })), { plan, timeline }];
    this.domain = null;
    this.tell();
    this.draw();
  }

  /** Plans that can stand beside this one: on the same machine, in the same units, legal. */
  offer() {
    const { plan, data } = this,
      others = data.plans.filter(
        (one) => one !== plan && one.judgement.legal && !rulesApart(data, plan, one).length && sameLevels(one, plan),
      );
    this.other.replaceChildren(
      ...others.map((one) => el("option", { value: data.plans.indexOf(one) }, shown(one.name, 40))),
      el("option", { value: "" }, "nothing"),
    );
    const base = others.find((one) => one.baseline) || others[0];
    this.other.value = base ? String(data.plans.indexOf(base)) : "";
    this.otherLabel.hidden = !others.length;
    const unit = data.graphs[plan.graph].energy_unit;
    this.axis.options[0].textContent = `${costWord(unit)} spent`;
    const free = !plan.judgement.legal || !(plan.judgement.energy > 0);
    this.axis.value = free ? "moves" : this.axis.value;
    this.axisLabel.hidden = free;
  }

  tell() {
    const { arena } = this.timeline,
      explicit = arena.management === "explicit",
      kinds = new Set(this.strips.flatMap((strip) => kindsOf(strip.timeline)));
    if (!explicit) kinds.add(KINDS.length - 1);
    this.legend.replaceChildren(
      ...KINDS.flatMap(([kind, words], i) => (kinds.has(i) ? [swatch(`var(--kind-${kind})`, words)] : [])),
    );
    this.words.textContent =
      (explicit
        ? "What each level holds after every move; the plan decides. "
        : "What each level of the cache holds after every move: what was touched last lies in the fastest. ") +
      "Point at a value for who made it and who reads it next; click to go to the move.";
  }

  /**
   * @param {number} factor
   * @param {number} [middle]
   */
  zoomBy(factor, middle) {
    const [low, high] = this.domain || this.whole,
      here = placeAlong(this.axis.value, this.timeline, this.step),
      at = middle ?? (here >= low && here <= high ? here : (low + high) / 2); // the move shown stays in sight
    this.zoomTo([at - (at - low) / factor, at + (high - at) / factor]);
  }

  /** @param {[number, number] | null} domain */
  zoomTo(domain) {
    const [low, high] = (this.whole = extentOf(this.strips, this.axis.value));
    if (domain) {
      const span = Math.min(high - low, domain[1] - domain[0]),
        from = Math.max(low, Math.min(high - span, domain[0]));
      this.domain = span >= high - low ? null : [from, from + span];
    } else this.domain = null;
    this.draw();
  }

  draw() {
    const width = Math.floor(this.holder.clientWidth);
    if (!this.strips.length || width < 80) return;
    this.width = width;
    this.whole = extentOf(this.strips, this.axis.value);
    const plot = new MemoryPlot(this.strips, this.axis.value, this.domain, width),
      { canvas, pen } = canvasOf(width, plot.height);
    plot.drawOn(pen);
    this.cursor = el("div", { class: "cursors" });
    this.holder.replaceChildren(canvas, this.cursor);
    this.plotted = plot;
    this.mark(this.step);
    const label = `Memory over time in ${this.strips.map(({ plan }) => shown(plan.name, 40)).join(" and ")}`;
    this.holder.setAttribute("aria-label", `${label}: ${plot.levels.map((level) => level.words).join("; ")}`);
    this.files.replaceChildren(
      filesOf(
        "Memory over time",
        () => {
          const svg = new SvgPen(width, plot.height);
          plot.drawOn(svg);
          return svg.node();
        },
        asTable(["plan", "value", "level", `size (${this.timeline.graph.unit})`, "from move", "to move"], () =>
          this.strips.flatMap(({ plan, timeline }) =>
            livesOf(timeline).map((life) => [
              shown(plan.name, 60),
              shown(valueName(timeline.graph, life.value)),
              life.level === null ? "–" : timeline.arena.names[life.level],
              grouped(timeline.graph.value_size[life.value]),
              Math.floor(life.from),
              Math.ceil(life.to - 0.5),
            ]),
          ),
        ),
      ),
    );
  }

  /**
   * Show where the player is.
   * @param {number} step
   */
  mark(step) {
    this.step = step;
    if (!this.plotted) return;
    const { x, levels, left, right } = this.plotted,
      at = x(placeAlong(this.axis.value, this.timeline, step));
    this.cursor.replaceChildren(
      ...levels.flatMap((level) =>
        level.strips
          .filter((strip) => strip.plan === this.plan && at >= left && at <= right)
          .map((strip) => el("div", { style: { left: `${at}px`, top: `${strip.top}px`, height: `${STRIP}px` } })),
      ),
    );
  }

  /** @param {MouseEvent} event */
  along(event) {
    return this.plotted?.x.invert(event.clientX - this.holder.getBoundingClientRect().left);
  }

  /**
   * What is under the pointer: strip, level, move, value.
   * @param {MouseEvent} event
   */
  at(event) {
    if (!this.plotted) return null;
    const box = this.holder.getBoundingClientRect(),
      px = event.clientX - box.left,
      py = event.clientY - box.top;
    for (const level of this.plotted.levels)
      for (const strip of level.strips) {
        if (py < strip.top || py > strip.bottom) continue;
        const column = strip.columns.find(({ x0, x1 }) => px >= x0 && px <= x1);
        if (!column) return null;
        const units = (level.most * (strip.bottom - py)) / STRIP,
          held = strip.stacks.get(column.step) || [];
        let sum = 0;
        for (const [value, size] of held) {
          sum += size;
          if (units < sum) return { level, strip, step: column.step, value, size };
        }
        return { level, strip, step: column.step, value: null, size: sum };
      }
    return null;
  }

  /** @param {NonNullable<ReturnType<Memory["at"]>>} found */
  story({ level, strip, step, value, size }) {
    const { timeline } = strip,
      { graph } = timeline,
      when = `after move ${grouped(step)} of ${grouped(timeline.length)}`;
    if (value === null) return readoutLines(`${shown(level.name, 30)}: ${grouped(size)} held`, when);
    if (value < 0)
      return readoutLines(
        `${grouped(size)} ${graph.unit} left over`,
        when,
        "cache lines of values that nothing needs any more",
      );
    return readoutLines(
      shown(valueName(graph, value), 80),
      `${grouped(size)} ${graph.unit} in ${shown(level.name, 30)}, ${when}`,
      ...storyOf(timeline, value, level.level, step),
    );
  }
}

/** @type {(a: PlanData, b: PlanData) => boolean} */
const sameLevels = (a, b) =>
  a.machine.level.map((level) => level.name).join("\n") === b.machine.level.map((level) => level.name).join("\n");
