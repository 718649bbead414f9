// A captured PyTorch step on the page: computation and copies side by side in time, memory against the budget, kernels' shares.

const LANES = [
  { name: "part", top: 4, height: 14 },
  { name: "compute", top: 22, height: 30 },
  { name: "to the host", top: 58, height: 15 },
  { name: "from the host", top: 77, height: 15 },
];
const HELD_TOP = 124,
  HELD_HEIGHT = 210,
  STEP_HEIGHT = HELD_TOP + HELD_HEIGHT + 34;
const PART_COLOURS = { forward: "#56b4e9", backward: "#cc79a7", optimizer: "#e69f00" };
const AGAIN_COLOUR = "#d55e00",
  COPY_COLOURS = [null, "#009e73", "#7fbf3f"];
const MOST_MODULES = 12; // rows of the table
const HELD_COLOURS = ["#8c96a1", "#b4b9bf", "#d8c58a", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#f0e442"];

class StepView {
  /**
   * @param {HTMLElement} root
   * @param {ReportData} data
   * @param {(plan: PlanData, step: number) => void} open  goes to a move of a plan in the player
   */
  constructor(root, data, open) {
    this.data = data;
    this.open = open;
    /** @type {[number, number] | null} */
    this.domain = null;
    this.width = 0;
    const button = (text, label, act) =>
      el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
    this.sentence = el("p", { class: "sentence", "data-test": "step" });
    this.holder = el("div", { class: "chart steptime", role: "img", tabindex: "0" });
    this.legend = el("div", { class: "legend" });
    this.files = el("div", {});
    this.modules = el("div", {});
    this.shares = el("div", { class: "bars" });
    this.frontier = el("div", {});
    root.append(
      this.sentence,
      el(
        "div",
        { class: "row" },
        button("−", "Zoom out", () => this.zoomBy(1 / 1.6)),
        button("+", "Zoom in", () => this.zoomBy(1.6)),
        button("Fit", "Show all of it", () => this.zoomTo(null)),
      ),
      this.legend,
      el("figure", {}, this.holder, (this.caption = el("figcaption", {})), this.files),
      this.frontier,
      this.modules,
      this.shares,
    ); // prettier-ignore
    this.listen();
    redrawn(this);
  }

  listen() {
    const { holder } = this;
    holder.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey || event.altKey)) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, this.timeAt(event));
    });
    holder.addEventListener("pointermove", (event) => {
      const story = event.pointerType === "touch" ? null : this.story(event);
      if (story) readout.show(event, ...story);
      else readout.hide();
    });
    holder.addEventListener("pointerleave", () => readout.hide());
    holder.addEventListener("click", (event) => {
      const move = this.moveAt(event);
      if (move !== null) this.open(this.plan, move + 1);
    });
    holder.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
      if (event.key === "+" || event.key === "=") this.zoomBy(1.6);
      else if (event.key === "-") this.zoomBy(1 / 1.6);
      else if (by) {
        const [from, to] = this.shown(),
          shift = by * (to - from);
        this.zoomTo([from + shift, to + shift]);
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** @param {PlanData} plan */
  show(plan) {
    this.plan = plan;
    this.graph = this.data.graphs[plan.graph];
    this.arena = arenaOf(plan);
    const played = plan.judgement.legal ? plan.kind.length : Math.max(0, (plan.judgement.move || 1) - 1);
    this.moves = sliceMoves(plan, played);
    this.time = timeMoves(this.graph, this.arena, this.moves, Boolean(plan.budget && plan.budget.overlap));
    this.held = heldFor(this.graph, this.arena, this.moves);
    this.domain = null;
    this.tell();
    this.draw();
    this.showModules();
    this.showShares();
    this.showFrontier();
  }

  /** Whether the step holds more without a limit than here: then that is drawn behind. */
  get limited() {
    return unlimitedPeak(this.plan) > stepPeak(this.plan);
  }

  get unit() {
    return this.graph.energy_unit;
  }

  /** Runs of ops that have run before. */
  repeats() {
    const ran = new Set();
    return this.moves.kind.map((kind, i) => {
      if (kind !== COMPUTE) return false;
      const again = ran.has(this.moves.subject[i]) || this.graph.step.op_again[this.moves.subject[i]];
      ran.add(this.moves.subject[i]);
      return again;
    });
  }

  tell() {
    const { plan, graph, time, moves } = this,
      { budget } = plan;
    this.again = this.repeats();
    const cost = (amount) => energyText(amount, this.unit);
    const once = d3.sum(moves.kind, (kind, i) => (kind === COMPUTE && this.again[i] ? graph.op_cost[moves.subject[i]] : 0)),
      away = d3.sum(moves.kind, (kind, i) => (kind === COPY && moves.level[i] === 0 ? graph.tensor_size[moves.subject[i]] : 0)); // prettier-ignore
    const peak = stepPeak(plan);
    const limit = budget && budget.budget !== null ? ` of a budget of ${bytesText(budget.budget)}` : "";
    const timed = this.unit === "ns";
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
    this.caption.textContent = `Along: predicted ${costWord(this.unit)} of one step. Point at it for names and lines, click to go to the move in the player, Ctrl with the wheel (or + and −) to zoom.`;
    const used = new Set();
    for (let i = 0; i < this.held.length; i++) if (this.held[i] > 0) used.add(i % HELD_FOR.length);
    const copies = [1, 2].filter((engine) => time.engine.includes(engine));
    this.legend.replaceChildren(
      ...Object.entries(PART_COLOURS)
        .filter(([part]) => graph.step.op_part.includes(part))
        .map(([part, colour]) => swatch(colour, `${part} pass`.replace("optimizer pass", "optimizer"))),
      ...(this.again.includes(true) ? [swatch(AGAIN_COLOUR, "computed again")] : []),
      ...copies.map((engine) => swatch(COPY_COLOURS[engine], ENGINES[engine])),
      el("span", {}, "Held:"),
      ...(this.limited ? [swatch(cssValue("--muted"), "all, without a limit")] : []),
      ...[...used].sort((a, b) => a - b).map((k) => swatch(HELD_COLOURS[k], HELD_FOR[k][1])),
    );
    this.holder.setAttribute(
      "aria-label",
      `The step in time: ${plural(moves.kind.length, "move")}, ${cost(time.total)}, at most ${bytesText(peak)} held`,
    );
  }

  // Zooming ---------------------------------------------------------------------------------------------------------

  shown() {
    return this.domain || [0, this.time.total || 1];
  }

  zoomTo(domain) {
    const most = this.time.total || 1;
    if (domain) {
      const width = Math.min(most, Math.max(most / 20_000, domain[1] - domain[0])),
        from = Math.max(0, Math.min(most - width, domain[0]));
      this.domain = width >= most ? null : [from, from + width];
    } else this.domain = null;
    this.draw();
  }

  zoomBy(factor, around) {
    const [from, to] = this.shown(),
      middle = around === undefined ? (from + to) / 2 : around;
    this.zoomTo([middle - (middle - from) / factor, middle + (to - middle) / factor]);
  }

  // Drawing ---------------------------------------------------------------------------------------------------------

  draw() {
    const width = Math.floor(this.holder.clientWidth);
    if (!this.plan || width < 50) return;
    this.width = width;
    const { canvas, pen } = canvasOf(width, STEP_HEIGHT);
    this.drawOn(pen, width);
    this.holder.replaceChildren(canvas);
    const picture = () => {
      const svg = new SvgPen(width, STEP_HEIGHT);
      this.drawOn(svg, width);
      return svg.node();
    };
    const table = asTable(["move", "what", "part", "line", "begins", "ends", "held"], () => this.rows());
    this.files.replaceChildren(filesOf("the step in time", picture, table));
  }

  rows() {
    const { graph, moves, time } = this,
      scale = energyScale(time.total, this.unit);
    return moves.kind.map((kind, i) => [
      i + 1,
      this.nameOf(i),
      kind === COMPUTE ? graph.step.op_part[moves.subject[i]] : "",
      kind === COMPUTE ? graph.step.op_line[moves.subject[i]] : "",
      (time.began[i] / scale.factor).toPrecision(6),
      (time.ended[i] / scale.factor).toPrecision(6),
      this.heldAt(i + 1),
    ]);
  }

  heldAt(step) {
    let sum = 0;
    for (let k = 0; k < HELD_FOR.length; k++) sum += this.held[step * HELD_FOR.length + k];
    return sum;
  }

  nameOf(i) {
    const { graph, moves, arena } = this,
      subject = moves.subject[i];
    if (moves.kind[i] === COMPUTE) return graph.op_name[subject];
    const words = moves.kind[i] === DROP ? `free in ${arena.names[moves.level[i]]}` : moves.level[i] === 0 ? "to the host" : "back from the host"; // prettier-ignore
    return `${graph.tensor_name[subject]} ${words}`;
  }

  drawOn(pen, width) {
    const left = width < 500 ? 46 : 92,
      right = width - 8;
    this.x = d3.scaleLinear(this.shown(), [left, right]);
    const ink = cssValue("--ink"),
      muted = cssValue("--muted");
    pen.fillStyle = cssValue("--soft");
    pen.fillRect(left, HELD_TOP, right - left, HELD_HEIGHT);
    pen.font = `11px ${FONT}`;
    pen.textAlign = "right";
    pen.fillStyle = muted;
    const copying = this.time.engine.some((engine) => engine > 0);
    LANES.forEach((lane, i) => {
      if (i < 2 || copying) pen.fillText(fitted(pen, lane.name, left - 6), left - 6, lane.top + lane.height / 2 + 4);
    });
    this.drawMoves(pen, left, right, ink);
    this.drawHeld(pen, left, right, muted);
    this.drawTime(pen, left, right, muted);
  }

  /** Boxes of ops and copies; what is thinner than half a pixel is drawn together with its neighbours. */
  drawMoves(pen, left, right, ink) {
    const { time, moves, graph, x } = this,
      [from, to] = this.shown();
    const last = LANES.map(() => ({ x: -1, colour: "" }));
    const box = (lane, began, ended, colour, label) => {
      if (ended < from || began > to) return;
      const a = Math.max(left, x(began)),
        b = Math.min(right, Math.max(x(ended), a + 0.5));
      if (b - last[lane].x < 0.5 && last[lane].colour === colour) return;
      last[lane] = { x: b, colour };
      const { top, height } = LANES[lane];
      pen.fillStyle = colour;
      pen.fillRect(a, top, b - a, height);
      if (b - a > 3) {
        pen.fillStyle = cssValue("--paper");
        pen.fillRect(b - 0.6, top, 0.6, height);
      }
      if (label && b - a > 44) {
        pen.fillStyle = "#10151a";
        pen.font = `11px ${FONT}`;
        pen.textAlign = "left";
        pen.fillText(fitted(pen, label, b - a - 8), a + 4, top + height / 2 + 4);
      }
    };
    // Parts: stretches of the computation that belong to the same one.
    let open = null;
    const parts = [];
    for (let i = 0; i < moves.kind.length; i++) {
      if (time.engine[i] !== 0) continue;
      const part = graph.step.op_part[moves.subject[i]];
      if (open && open.part === part) open.ended = time.ended[i];
      else parts.push((open = { part, began: time.began[i], ended: time.ended[i] }));
    }
    for (const { part, began, ended } of parts) box(0, began, ended, PART_COLOURS[part], part);
    for (let i = 0; i < moves.kind.length; i++) {
      const engine = time.engine[i],
        subject = moves.subject[i];
      if (engine === 0)
        box(1, time.began[i], time.ended[i], this.again[i] ? AGAIN_COLOUR : PART_COLOURS[graph.step.op_part[subject]], shown(graph.op_name[subject], 60)); // prettier-ignore
      else if (engine > 0)
        box(engine + 1, time.began[i], time.ended[i], COPY_COLOURS[engine], shown(graph.tensor_name[subject], 60));
    }
    pen.fillStyle = ink;
  }

  /** The most bytes that memory may hold besides the headroom; null without a budget. */
  get limit() {
    const { budget, capacity } = this.plan;
    if (capacity[0] < 2 ** 52) return capacity[0];
    return budget && budget.budget !== null ? budget.budget - budget.headroom : null;
  }

  drawHeld(pen, left, right, muted) {
    const { held, time, x } = this,
      width = HELD_FOR.length,
      steps = time.clock.length;
    let most = this.plan.judgement.peak[0] || 1;
    if (this.plan.budget && this.plan.budget.budget !== null && this.limit !== null) most = Math.max(most, this.limit);
    if (this.limited) most = Math.max(most, d3.max(this.plan.unlimited.held));
    const y = d3.scaleLinear([0, 1.06 * most], [HELD_TOP + HELD_HEIGHT, HELD_TOP]);
    this.y = y;
    if (this.limited) this.drawUnlimited(pen, left, right);
    // One column per pixel: the fullest moment in it, or what was held last before it.
    let step = 0;
    this.columns = [];
    for (let px = left; px < right; px++) {
      const until = x.invert(px + 1);
      let best = step;
      while (step + 1 < steps && time.clock[step + 1] <= until) {
        step++;
        if (time.clock[step] >= x.invert(px) && this.heldAt(step) > this.heldAt(best)) best = step;
      }
      if (time.clock[best] < x.invert(px)) best = step;
      this.columns.push(best);
      step = Math.max(step, best);
    }
    for (let k = 0; k < width; k++) {
      pen.fillStyle = HELD_COLOURS[k];
      let open = null;
      const flush = () => {
        if (open && open.low - open.high > 0.05) pen.fillRect(open.x, open.high, open.end - open.x, open.low - open.high);
      };
      this.columns.forEach((at, c) => {
        let below = 0;
        for (let j = 0; j < k; j++) below += held[at * width + j];
        const low = y(below),
          high = y(below + held[at * width + k]);
        if (open && open.low === low && open.high === high) open.end = left + c + 1;
        else {
          flush();
          open = { x: left + c, end: left + c + 1, low, high };
        }
      });
      flush();
    }
    pen.font = `11px ${FONT}`;
    pen.strokeStyle = muted;
    pen.fillStyle = muted;
    pen.textAlign = "right";
    const [factor, name] = byteScale(most);
    for (const n of d3.ticks(0, most / factor, 4)) pen.fillText(grouped(n), left - 6, y(n * factor) + 4);
    pen.fillText(name, left - 6, HELD_TOP - 6);
    if (this.limit === null) return;
    pen.strokeStyle = cssValue("--bad");
    pen.setLineDash([6, 4]);
    rule(pen, left, y(this.limit), right, y(this.limit));
    pen.setLineDash([]);
    pen.fillStyle = cssValue("--bad");
    const { budget } = this.plan;
    const words = budget && budget.budget !== null ? `budget ${bytesText(budget.budget)}${budget.headroom ? " less headroom" : ""}` : `capacity ${bytesText(this.limit)}`; // prettier-ignore
    pen.fillText(words, right, y(this.limit) - 5);
  }

  /** What the step holds without a limit, in its own time: the fullest moment of every pixel, as an area behind the rest. */
  drawUnlimited(pen, left, right) {
    const { x, y, plan } = this,
      bottom = HELD_TOP + HELD_HEIGHT;
    let began = 0;
    const most = new Map();
    plan.unlimited.held.forEach((bytes, o) => {
      const ended = began + plan.unlimited.cost[o];
      for (let px = Math.max(left, Math.floor(x(began))); px <= Math.min(right - 1, x(ended)); px++)
        most.set(px, Math.max(most.get(px) || 0, bytes));
      began = ended;
    });
    for (const [px, bytes] of most) {
      pen.fillStyle = cssValue("--line");
      pen.fillRect(px, y(bytes), 1, bottom - y(bytes));
      pen.fillStyle = cssValue("--muted");
      pen.fillRect(px, y(bytes), 1, 1.5);
    }
  }

  drawTime(pen, left, right, muted) {
    const bottom = HELD_TOP + HELD_HEIGHT,
      { factor, name } = energyScale(this.time.total, this.unit);
    pen.strokeStyle = pen.fillStyle = muted;
    rule(pen, left, bottom, right, bottom);
    pen.textAlign = "center";
    const scale = d3.scaleLinear(
      this.shown().map((t) => t / factor),
      [left, right],
    );
    for (const n of scale.ticks(Math.max(2, (right - left) / 110))) {
      rule(pen, scale(n), bottom, scale(n), bottom + 4);
      if (scale(n) < right - 24) pen.fillText(`${n}`, scale(n), bottom + 16);
    }
    pen.textAlign = "right";
    pen.fillText(name, right, bottom + 30);
  }

  // Pointing --------------------------------------------------------------------------------------------------------

  place(event) {
    const box = this.holder.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  timeAt(event) {
    return this.x.invert(this.place(event)[0]);
  }

  /** The move under the pointer: on a lane the one that runs there, in the memory the last one before; null: none. */
  moveAt(event) {
    const [px, py] = this.place(event),
      at = this.x.invert(px),
      lane = LANES.findIndex(({ top, height }) => py >= top && py <= top + height);
    if (py >= HELD_TOP) return this.stepAt(px) - 1 < 0 ? null : this.stepAt(px) - 1;
    if (lane < 0) return null;
    const engine = lane < 2 ? 0 : lane - 1,
      slack = Math.abs(this.x.invert(px + 1) - at);
    let best = null;
    for (let i = 0; i < this.moves.kind.length; i++) {
      if (this.time.engine[i] !== engine || this.time.began[i] > at + slack || this.time.ended[i] < at - slack) continue;
      if (best === null || this.time.began[i] <= at) best = i;
    }
    return best;
  }

  stepAt(px) {
    const column = Math.floor(px - this.x.range()[0]);
    return this.columns[Math.max(0, Math.min(this.columns.length - 1, column))] ?? 0;
  }

  story(event) {
    if (!this.plan || !this.x) return null;
    const [px, py] = this.place(event),
      { graph, moves, time } = this,
      cost = (amount) => energyText(amount, this.unit);
    if (py >= HELD_TOP && py <= HELD_TOP + HELD_HEIGHT) {
      const step = this.stepAt(px),
        width = HELD_FOR.length;
      const lines = HELD_FOR.map(([, words], k) => ({ words, bytes: this.held[step * width + k] })).filter(({ bytes }) => bytes > 0);
      return readoutLines(
        `${bytesText(this.heldAt(step))} held after move ${grouped(step)}`,
        ...lines.reverse().map(({ words, bytes }) => `${words}: ${bytesText(bytes)}`),
      );
    }
    const i = this.moveAt(event);
    if (i === null) return null;
    const when = `${cost(time.ended[i] - time.began[i])}, from ${cost(time.began[i])}`;
    if (moves.kind[i] !== COMPUTE)
      return readoutLines(shown(this.nameOf(i), 100), bytesText(graph.tensor_size[moves.subject[i]]), when, `move ${grouped(i + 1)}`); // prettier-ignore
    const o = moves.subject[i],
      { op_part: part, op_line: line, op_kernel: kernel } = graph.step;
    return readoutLines(
      shown(graph.op_name[o], 100),
      `${part[o]}${this.again[i] ? ", computed again" : ""}: ${shown(kernel[o], 80)}`,
      shown(line[o], 80),
      when,
      `move ${grouped(i + 1)}`,
    );
  }

  // Shares and the frontier -----------------------------------------------------------------------------------------

  showShares() {
    const { graph, moves } = this,
      { op_part: part, op_module: module, op_kernel: kernel } = graph.step;
    const total = d3.sum(moves.kind, (kind, i) => (kind === COMPUTE ? graph.op_cost[moves.subject[i]] : 0)) || 1;
    const group = (o) => blockOf(module[o]) || (part[o] === "optimizer" ? "optimizer" : "outside of modules");
    /** @type {[string, (op: number, again: boolean) => string][]} */
    const kinds = [
      [`${capital(costWord(this.unit))} by kernel`, (o) => kernel[o]],
      ["By module", group],
      ["By part", (o, again) => (again ? "computed again" : part[o])],
    ]; // prettier-ignore
    this.shares.replaceChildren(
      ...kinds.map(([title, key]) => shareTable(title, timeBy(graph, moves, key), total, this.unit)),
    );
  }

  /** What each block of the model keeps for the backward pass, computes again and sends to the host. */
  showModules() {
    const found = moduleRows(this.graph, this.moves),
      rows = found.slice(0, found.length > MOST_MODULES ? MOST_MODULES - 1 : MOST_MODULES);
    const summed = (name, some) => ({ name, kept: d3.sum(some, (r) => r.kept), again: d3.sum(some, (r) => r.again), sent: d3.sum(some, (r) => r.sent) }); // prettier-ignore
    if (found.length > rows.length)
      rows.push(summed(plural(found.length - rows.length, "other module"), found.slice(rows.length)));
    const cells = ({ name, kept, again, sent }) =>
      el(
        "tr",
        {},
        el("td", { class: "name" }, shown(name, 60)),
        el("td", { class: "n" }, kept ? bytesText(kept) : "–"),
        el("td", { class: "n" }, again ? energyText(again, this.unit) : "–"),
        el("td", { class: "n" }, sent ? bytesText(sent) : "–"),
      );
    const heads = ["module", "kept", "computed again", "sent"];
    const list = el(
      "table",
      { class: "modules" },
      el("thead", {}, el("tr", {}, ...heads.map((words, i) => el("th", { scope: "col", class: i ? "n" : "" }, words)))),
      el("tbody", {}, ...[summed("the whole step", found), ...rows].map(cells)),
    );
    this.modules.replaceChildren(
      el("h3", {}, "What each module keeps for the backward pass, computes again and sends to the host"),
      el("div", { class: "scroll", "data-test": "modules" }, list),
    );
  }

  /** Peak against time, and against joules: what quick plans for other budgets cost, and the plans of the page. */
  showFrontier() {
    const { data } = this,
      units = new Map();
    for (const plan of data.plans) {
      const graph = data.graphs[plan.graph];
      if (!graph.step || !plan.judgement.legal || plan.baseline) continue;
      units.set(graph.energy_unit, [...(units.get(graph.energy_unit) || []), { plan, peak: stepPeak(plan), cost: stepCost(data, plan) }]);
    }
    const known = data.curve ? data.graphs[data.curve.graph].energy_unit : "";
    const charts = [...units].filter(([unit, points]) => points.length > 1 || unit === known);
    this.frontier.replaceChildren(
      ...charts.map(([unit, points]) => frontierChart(data, unit, points, unit === known ? data.curve.points : [])),
    );
  }
}

/** The block of a model that a module is in: the path to its first number, h.3 of h.3.mlp.fc; without one, its first two names. */
function blockOf(path) {
  const names = path.split("."),
    at = names.findIndex((name) => /(^|\s)\d+$/.test(name));
  return names.slice(0, at < 0 ? 2 : at + 1).join(".");
}

/**
 * Per block of the model: bytes that its forward pass makes and leaves in memory for the backward pass, what it computes again,
 * and bytes that it sends to the host.
 * @param {Graph} graph
 * @param {Moves} moves
 */
function moduleRows(graph, moves) {
  const { op_module: module, op_part: part, tensor_role: role } = graph.step,
    { writes, readers } = effects(graph),
    ran = new Uint8Array(graph.op_name.length),
    rows = new Map();
  const row = (o) => {
    const name = blockOf(module[o]) || (part[o] === "optimizer" ? "optimizer" : "outside of modules");
    if (!rows.has(name)) rows.set(name, { name, kept: 0, again: 0, sent: 0 });
    return rows.get(name);
  };
  // A value is kept if it is there when the backward pass begins: its last move before that is no drop.
  const made = new Map();
  let forward = true;
  moves.kind.forEach((kind, i) => {
    const subject = moves.subject[i];
    if (kind === COMPUTE) {
      if (forward && part[subject] === "backward") {
        forward = false;
        for (const [v, o] of made) if (readers[v].some((reader) => part[reader] !== "forward")) row(o).kept += graph.value_size[v];
      }
      if (ran[subject] || graph.step.op_again[subject]) row(subject).again += graph.op_cost[subject];
      row(subject).sent += graph.step.op_sent[subject];
      ran[subject] = 1;
      if (forward) for (const v of writes[subject]) if (!role[graph.value_tensor[v]]) made.set(v, subject);
    } else if (kind === DROP && moves.level[i] === 0) {
      for (const v of versionsOf(graph)[subject]) made.delete(v);
    } else if (kind === COPY && moves.level[i] === 0) {
      const maker = versionsOf(graph)[subject].map((v) => graph.value_maker[v]).find((o) => o >= 0);
      if (maker !== undefined) row(maker).sent += graph.tensor_size[subject];
    }
  }); // prettier-ignore
  const share = ({ kept, again, sent }) => [kept, again, sent].map((amount, i) => amount / (most[i] || 1)),
    told = [...rows.values()].filter(({ kept, again, sent }) => kept || again || sent),
    most = [d3.sum(told, (r) => r.kept), d3.sum(told, (r) => r.again), d3.sum(told, (r) => r.sent)];
  return told.sort((a, b) => d3.max(share(b)) - d3.max(share(a)));
}

/** The chart of some plans by peak and cost, over the curve of quick ones. */
function frontierChart(data, unit, points, curve) {
  const word = costWord(unit),
    scale = energyScale(
      d3.max([...points, ...curve], (point) => point.cost),
      unit,
    );
  const quick = curve.map(({ peak, cost }) => ({ mib: peak / 2 ** 20, scaled: cost / scale.factor }));
  const rows = d3.sort(
    points.map((point) => ({ ...point, mib: point.peak / 2 ** 20, scaled: point.cost / scale.factor })),
    (row) => row.mib,
  );
  // The line goes through what nothing beats in both.
  const known = d3.sort([...rows, ...quick], (row) => row.mib),
    best = known.filter((row) => !known.some((other) => other !== row && other.mib <= row.mib && other.scaled <= row.scaled));
  const at = { x: "mib", y: "scaled" };
  const draw = (width) =>
    Plot.plot({
      width,
      height: 260,
      marginLeft: 64,
      marginRight: 90,
      marginTop: 30,
      marginBottom: 42,
      grid: true,
      style: { fontSize: "12px", background: "none" },
      x: { label: "peak memory, headroom included (MiB) →", nice: true },
      y: { label: `↑ ${word} of one step (${scale.name})`, nice: true },
      marks: [
        Plot.line(best, { ...at, stroke: cssValue("--strong-line"), strokeDasharray: "3 3" }),
        Plot.dot(quick, { ...at, r: 3, fill: cssValue("--strong-line") }),
        Plot.dot(rows, { ...at, r: 5, fill: (row) => planColour(data.plans.indexOf(row.plan)) }),
        Plot.text(rows, {
          ...at,
          text: (row) => shown(row.plan.name, 24),
          dx: 8,
          dy: -9,
          textAnchor: "start",
          fill: cssValue("--ink"),
        }),
      ],
    });
  return el(
    "div",
    {},
    el("h3", {}, `What a smaller budget costs in ${word}`),
    figure(
      `Peak memory against ${word} of ${plural(rows.length, "plan")}`,
      draw,
      "Each large point is a plan of the page, by the referee's peak and the predicted cost." +
        (quick.length ? " Small ones are plans made quickly for other budgets; the rightmost is the step without a limit." : ""),
      asTable(["plan", "peak (MiB)", `${word} (${scale.name})`], () => [
        ...rows.map((row) => [row.plan.name, row.mib.toFixed(2), row.scaled.toPrecision(5)]),
        ...quick.map((row) => ["quickly made", row.mib.toFixed(2), row.scaled.toPrecision(5)]),
      ]),
    ),
  );
}

/** The largest shares as a table with bars; the rest in one line. */
function shareTable(title, sums, total, unit) {
  const shownRows = sums.length > 10 ? sums.slice(0, 9) : sums.slice(),
    most = sums.length ? sums[0].time : 1,
    rest = sums.slice(shownRows.length);
  if (rest.length)
    shownRows.push({ name: plural(rest.length, "other"), time: d3.sum(rest, (sum) => sum.time), runs: 0, again: 0 });
  return el(
    "div",
    {},
    el("h4", {}, title),
    el(
      "table",
      {},
      el(
        "tbody",
        {},
        ...shownRows.map(({ name, time, runs, again }) =>
          el(
            "tr",
            { title: `${name}${runs ? `: ${plural(runs, "run")}` : ""}${again ? `, ${energyText(again, unit)} of it computed again` : ""}` },
            el("td", { class: "name" }, shown(name, 60)),
            el("td", {}, el("div", { class: "bar", style: { width: `${Math.min(100, (100 * time) / most)}%` } })),
            el("td", { class: "n" }, `${((100 * time) / total).toFixed(1)} %`),
          ),
        ),
      ),
    ),
  ); // prettier-ignore
}

/** Add the section for plans of captured steps, before the player; returns null where there is none. */
function showStep(data, open) {
  if (!data.plans.some((plan) => data.graphs[plan.graph].step)) return null;
  const root = el("div", { id: "step-view" }),
    section = el("section", { "aria-labelledby": "step" }, el("h2", { id: "step" }, "The step"), root);
  const nav = document.querySelector("nav.contents");
  nav.prepend(el("a", { href: "#step" }, "Step"));
  nav.after(section);
  const view = new StepView(root, data, open);
  return {
    view,
    show: (plan) => {
      section.hidden = !data.graphs[plan.graph].step;
      if (!section.hidden) view.show(plan);
    },
  };
}
