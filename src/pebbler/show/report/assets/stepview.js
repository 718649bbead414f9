// A captured PyTorch step on the page: its time and memory as a drawing to zoom and point at, shares of kernels and modules below.

class StepView {
  /**
   * @param {HTMLElement} root
   * @param {ReportData} data
   * @param {StepTimes} times  of the plan that is shown first
   * @param {(plan: PlanData, step: number) => void} open  goes to a move of a plan in the player
   */
  constructor(root, data, times, open) {
    this.data = data;
    this.times = times;
    this.open = open;
    /** @type {[number, number] | null} */
    this.domain = null; // the part of the step that is shown; null: all of it
    this.width = 0;
    /** @type {StepPlot | null} */
    this.plotted = null;
    this.sentence = el("p", { class: "sentence", "data-test": "step" });
    this.holder = el("div", { class: "chart steptime", role: "img", tabindex: "0" });
    this.legend = el("div", { class: "legend" });
    this.caption = el("figcaption", {});
    this.files = el("div", {});
    this.modules = el("div", {});
    this.shares = el("div", { class: "bars" });
    this.frontier = el("div", {});
    root.append(
      this.sentence,
      el(
        "div",
        { class: "row" },
        labelled("−", "Zoom out", () => this.zoomBy(1 / 1.6)),
        labelled("+", "Zoom in", () => this.zoomBy(1.6)),
        labelled("Fit", "Show all of it", () => this.zoomTo(null)),
      ),
      this.legend,
      el("figure", {}, this.holder, this.caption, this.files),
      this.frontier,
      this.modules,
      this.shares,
    );
    this.listen();
    redrawn(this);
  }

  listen() {
    const { holder } = this;
    holder.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey || event.altKey)) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, this.plotted?.x.invert(this.place(event)[0]));
    });
    holder.addEventListener("pointermove", (event) => {
      const story = event.pointerType === "touch" ? null : this.story(event);
      if (story) readout.show(event, ...story);
      else readout.hide();
    });
    holder.addEventListener("pointerleave", () => readout.hide());
    holder.addEventListener("click", (event) => {
      const move = this.plotted ? this.plotted.moveAt(...this.place(event)) : null;
      if (move !== null) this.open(this.times.plan, move + 1);
    });
    holder.addEventListener("keydown", (event) => {
      const by = ARROWS[event.key];
      if (event.key === "+" || event.key === "=") this.zoomBy(1.6);
      else if (event.key === "-") this.zoomBy(1 / 1.6);
      else if (by) {
        const [from, to] = this.shown(),
          shift = 0.2 * by * (to - from);
        this.zoomTo([from + shift, to + shift]);
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** @param {StepTimes} times */
  show(times) {
    this.times = times;
    this.domain = null;
    this.tell();
    this.draw();
    const { graph, moves } = times;
    this.modules.replaceChildren(...modulesTable(times));
    this.shares.replaceChildren(...shareTables(graph, times.step, moves));
    this.frontier.replaceChildren(...frontierCharts(this.data));
  }

  tell() {
    const { plan, graph, step, time, moves, again, held, unit, unlimited } = this.times,
      { budget } = plan;
    /** @param {number} amount */
    const cost = (amount) => energyText(amount, unit);
    const once = d3.sum(moves.kind, (kind, i) => (kind === COMPUTE && again[i] ? graph.op_cost[moves.subject[i]] : 0)),
      away = d3.sum(moves.kind, (kind, i) => (kind === COPY && moves.level[i] === 0 ? graph.tensor_size[moves.subject[i]] : 0)); // prettier-ignore
    const peak = stepPeak(plan);
    const limit = budget && budget.budget !== null ? ` of a budget of ${bytesText(budget.budget)}` : "";
    const timed = unit === "ns";
    this.sentence.replaceChildren(
      `The step that repeats ${timed ? "takes" : "costs"} `,
      el("b", {}, cost(timed ? time.total : plan.judgement.energy)),
      timed && time.waited > 0 ? `, ${cost(time.waited)} of it waiting for copies` : "",
      once > 0 ? `; ${cost(once)} goes into computing values again` : "",
      away > 0 ? `; ${bytesText(away)} go to the host and come back` : "",
      ". It holds at most ",
      el("b", {}, bytesText(peak)),
      `${limit}${budget && budget.headroom ? `, ${bytesText(budget.headroom)} of them headroom for the allocator` : ""}.`,
    );
    Object.assign(this.sentence.dataset, { total: time.total, peak });
    this.caption.textContent = `Along: predicted ${costWord(unit)} of one step. Point at it for names and lines, click to go to the move in the player, Ctrl with the wheel (or + and −) to zoom.`;
    /** @type {Set<number>} */
    const used = new Set();
    for (let i = 0; i < held.length; i++) if (held[i] > 0) used.add(i % HELD_FOR.length);
    const copies = [1, 2].filter((engine) => time.engine.includes(engine));
    this.legend.replaceChildren(
      ...Object.entries(PART_COLOURS)
        .filter(([part]) => step.op_part.includes(part))
        .map(([part, colour]) => swatch(colour, `${part} pass`.replace("optimizer pass", "optimizer"))),
      ...(again.includes(true) ? [swatch(AGAIN_COLOUR, "computed again")] : []),
      ...copies.map((engine) => swatch(COPY_COLOURS[engine], ENGINES[engine])),
      el("span", {}, "Held:"),
      ...(unlimited ? [swatch(cssValue("--muted"), "all, without a limit")] : []),
      ...[...used].sort((a, b) => a - b).map((k) => swatch(HELD_COLOURS[k], HELD_FOR[k][1])),
    );
    this.holder.setAttribute(
      "aria-label",
      `The step in time: ${plural(moves.kind.length, "move")}, ${cost(time.total)}, at most ${bytesText(peak)} held`,
    );
  }

  /**
   * From when to when the step is shown.
   * @returns {[number, number]}
   */
  shown() {
    return this.domain || [0, this.times.time.total || 1];
  }

  /** @param {[number, number] | null} domain */
  zoomTo(domain) {
    const most = this.times.time.total || 1;
    if (domain) {
      const width = Math.min(most, Math.max(most / 20_000, domain[1] - domain[0])),
        from = Math.max(0, Math.min(most - width, domain[0]));
      this.domain = width >= most ? null : [from, from + width];
    } else this.domain = null;
    this.draw();
  }

  /**
   * @param {number} factor
   * @param {number} [around]
   */
  zoomBy(factor, around) {
    const [from, to] = this.shown(),
      middle = around === undefined ? (from + to) / 2 : around;
    this.zoomTo([middle - (middle - from) / factor, middle + (to - middle) / factor]);
  }

  draw() {
    const width = Math.floor(this.holder.clientWidth),
      { times } = this;
    if (width < 50) return;
    this.width = width;
    const plot = (this.plotted = new StepPlot(times, this.shown(), width)),
      { canvas, pen } = canvasOf(width, STEP_HEIGHT);
    plot.drawOn(pen);
    this.holder.replaceChildren(canvas);
    const picture = () => {
      const svg = new SvgPen(width, STEP_HEIGHT);
      plot.drawOn(svg);
      return svg.node();
    };
    const table = asTable(["move", "what", "part", "line", "begins", "ends", "held"], () => times.rows());
    this.files.replaceChildren(filesOf("the step in time", picture, table));
  }

  /**
   * The pointer's place in the drawing.
   * @param {MouseEvent} event
   * @returns {[x: number, y: number]}
   */
  place(event) {
    const box = this.holder.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  /**
   * Lines of a read-out about what is under the pointer, or null.
   * @param {MouseEvent} event
   */
  story(event) {
    if (!this.plotted) return null;
    const [px, py] = this.place(event),
      { times } = this.plotted,
      { graph, moves, time, step, again } = times;
    /** @param {number} amount */
    const cost = (amount) => energyText(amount, times.unit);
    if (py >= HELD_TOP && py <= HELD_BOTTOM) {
      const done = this.plotted.stepAt(px),
        lines = HELD_FOR.map(([, words], k) => ({ words, bytes: times.held[done * HELD_FOR.length + k] })).filter(({ bytes }) => bytes > 0); // prettier-ignore
      return readoutLines(
        `${bytesText(times.heldAt(done))} held after move ${grouped(done)}`,
        ...lines.reverse().map(({ words, bytes }) => `${words}: ${bytesText(bytes)}`),
      );
    }
    const i = this.plotted.moveAt(px, py);
    if (i === null) return null;
    const when = `${cost(time.ended[i] - time.began[i])}, from ${cost(time.began[i])}`;
    if (moves.kind[i] !== COMPUTE)
      return readoutLines(shown(times.nameOf(i), 100), bytesText(graph.tensor_size[moves.subject[i]]), when, `move ${grouped(i + 1)}`); // prettier-ignore
    const o = moves.subject[i];
    return readoutLines(
      shown(graph.op_name[o], 100),
      `${step.op_part[o]}${again[i] ? ", computed again" : ""}: ${shown(step.op_kernel[o], 80)}`,
      shown(step.op_line[o], 80),
      when,
      `move ${grouped(i + 1)}`,
    );
  }
}

/**
 * Add the section for plans of captured steps, before the player; returns null where there is none.
 * @param {ReportData} data
 * @param {(plan: PlanData, step: number) => void} open
 */
function showStep(data, open) {
  const captured = data.plans.find((plan) => data.graphs[plan.graph].step),
    first = captured ? timesOf(data, captured) : null;
  if (!first) return null;
  const root = el("div", { id: "step-view" }),
    part = el("section", { "aria-labelledby": "step" }, el("h2", { id: "step" }, "The step"), root);
  const nav = elementAt("nav.contents", HTMLElement);
  nav.prepend(el("a", { href: "#step" }, "Step"));
  nav.after(part);
  const view = new StepView(root, data, first, open);
  return {
    view,
    /** @param {PlanData} plan */
    show: (plan) => {
      const times = timesOf(data, plan);
      part.hidden = times === null;
      if (times) view.show(times);
    },
  };
}
