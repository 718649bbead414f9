// Memory over time: what each level holds, stacked up under its capacity, in the plan shown and in the one it is compared with.

const KINDS = [
  ["param", "params"],
  ["input", "inputs"],
  ["temp", "temps"],
  ["again", "temps computed again"],
  ["away", "temps sent to a slower level"],
  ["output", "outputs"],
  ["left", "left over: nothing needs it now"],
];
const STRIP = 96,
  STRIP_GAP = 24,
  LEVEL_GAP = 18;

/**
 * Per value the number of its kind in KINDS: the tensor's, or what this plan does to it.
 * @param {Timeline} timeline
 */
const kindsOf = (timeline) => once(timeline, "kinds", () => makeKinds(timeline));

/** @param {Timeline} timeline */
function makeKinds(timeline) {
  const { graph, moves } = timeline,
    number = new Map(KINDS.map(([kind], i) => [kind, i])),
    kinds = graph.value_tensor.map((t) => number.get(graph.tensor_kind[t]) ?? 2),
    makes = timeline.makes();
  const away = new Set();
  moves.kind.forEach((kind, i) => {
    if (kind === COPY && moves.to[i] > moves.level[i]) away.add(moves.subject[i]);
  });
  kinds.forEach((kind, v) => {
    if (kind !== number.get("temp")) return;
    if (makes[v].length > 1) kinds[v] = number.get("again");
    else if (away.has(graph.value_tensor[v])) kinds[v] = number.get("away");
  });
  return kinds;
}

/**
 * Values in the order in which they are stacked: by kind, then by the move that first makes them.
 * @param {Timeline} timeline
 */
const stackRanks = (timeline) => once(timeline, "stack ranks", () => makeStackRanks(timeline));

/** @param {Timeline} timeline */
function makeStackRanks(timeline) {
  const kinds = kindsOf(timeline),
    makes = timeline.makes(),
    order = kinds
      .map((_, v) => v)
      .sort((a, b) => kinds[a] - kinds[b] || (makes[a][0] || 0) - (makes[b][0] || 0) || a - b);
  const ranks = new Int32Array(kinds.length);
  order.forEach((v, rank) => {
    ranks[v] = rank;
  });
  return ranks;
}

/**
 * What a level holds, from the bottom up: [value, units], what nothing needs on top.
 * @param {Timeline} timeline
 */
function stacked(timeline, held) {
  const ranks = stackRanks(timeline);
  return held.sort((a, b) => (a[0] < 0 ? 1 : b[0] < 0 ? -1 : ranks[a[0]] - ranks[b[0]]));
}

/**
 * Units held by each level after every number of legal moves: levels x (moves + 1).
 * @param {Timeline} timeline
 */
const roomOverTime = (timeline) => once(timeline, "room", () => makeRoomOverTime(timeline));

/** @param {Timeline} timeline */
function makeRoomOverTime(timeline) {
  const { arena, judgement } = timeline,
    count = judgement.legal ? timeline.length : Math.min(timeline.length, judgement.played),
    rooms = arena.names.map(() => new Float64Array(count + 1));
  if (arena.management === "explicit")
    play(timeline.graph, arena, timeline.moves, (i, _, used) => {
      used.forEach((units, k) => {
        if (i + 1 <= count) rooms[k][i + 1] = units;
      });
    });
  return rooms; // a cache is as full as it gets: any move of a column will do
}

class Memory {
  /**
   * `open(plan, step)` goes to a move of a plan.
   * @param {HTMLElement} root
   * @param {ReportData} data
   */
  constructor(root, data, open) {
    this.data = data;
    this.open = open;
    this.domain = null;
    /** @type {Timeline} */
    this.timeline = null;
    /** @type {PlanData} */
    this.plan = null;
    this.axis = el(
      "select",
      { onchange: () => this.zoomTo(null) },
      el("option", { value: "energy" }, "energy spent"),
      el("option", { value: "moves" }, "moves done"),
    );
    this.other = el("select", { onchange: () => this.show(this.timeline, this.plan) });
    const button = (text, label, act) =>
      el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
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
        button("−", "Zoom out", () => this.zoomBy(1 / 1.6)),
        button("+", "Zoom in", () => this.zoomBy(1.6)),
        button("Fit", "Show all of it", () => this.zoomTo(null)),
      ),
      this.legend,
      el("figure", {}, this.holder, this.words, this.files),
    );
    this.listen();
    new ResizeObserver(() => {
      if (this.holder.clientWidth !== this.width) this.draw();
    }).observe(this.holder);
    document.addEventListener("themechange", () => this.draw());
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
      const by = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
      if (event.key === "+" || event.key === "=") this.zoomBy(1.6);
      else if (event.key === "-") this.zoomBy(1 / 1.6);
      else if (by && this.domain) {
        const shift = by * (this.domain[1] - this.domain[0]);
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
      known = (one) =>
        one !== plan && one.judgement.legal && !rulesApart(data, plan, one).length && sameLevels(one, plan),
      others = /** @type {[PlanData, number][]} */ (data.plans.map((one, i) => [one, i])).filter(([one]) => known(one));
    this.other.replaceChildren(
      ...others.map(([one, i]) => el("option", { value: i }, shown(one.name, 40))),
      el("option", { value: "" }, "nothing"),
    );
    const base = others.find(([one]) => one.baseline) || others[0];
    this.other.value = base ? String(base[1]) : "";
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
      ...KINDS.map(([kind, words], i) => [
        i,
        el("span", {}, el("span", { class: "swatch", style: { background: `var(--kind-${kind})` } }), words),
      ])
        .filter(([i]) => kinds.has(i))
        .map(([, node]) => node),
    );
    this.words.textContent =
      (explicit
        ? "What each level holds after every move; the plan decides. "
        : "What each level of the cache holds after every move: what was touched last lies in the fastest. ") +
      "Point at a value for who made it and who reads it next; click to go to the move.";
  }

  zoomBy(factor, middle) {
    const [low, high] = this.domain || this.whole,
      at = middle ?? (low + high) / 2;
    this.zoomTo([at - (at - low) / factor, at + (high - at) / factor]);
  }

  zoomTo(domain) {
    const [low, high] = (this.whole = this.extent());
    if (domain) {
      const span = Math.min(high - low, domain[1] - domain[0]),
        from = Math.max(low, Math.min(high - span, domain[0]));
      this.domain = span >= high - low ? null : [from, from + span];
    } else this.domain = null;
    this.draw();
  }

  /**
   * Where a move ends along the axis.
   * @param {Timeline} timeline
   * @param {number} step
   */
  place(timeline, step) {
    return this.axis.value === "moves" ? step : timeline.energyAt(step);
  }

  extent() {
    return [0, d3.max(this.strips, ({ timeline }) => this.place(timeline, timeline.length)) || 1];
  }

  draw() {
    const width = Math.floor(this.holder.clientWidth);
    if (!this.strips || width < 80) return;
    this.width = width;
    const plot = this.plot(width),
      { canvas, pen } = canvasOf(width, plot.height);
    this.drawOn(pen, plot);
    this.cursor = el("div", { class: "cursors" });
    this.holder.replaceChildren(canvas, this.cursor);
    this.plotted = plot;
    this.mark(this.step || 0);
    const label = `Memory over time in ${this.strips.map(({ plan }) => shown(plan.name, 40)).join(" and ")}`;
    this.holder.setAttribute("aria-label", `${label}: ${plot.levels.map((level) => level.words).join("; ")}`);
    this.files.replaceChildren(
      filesOf(
        "Memory over time",
        () => {
          const svg = new SvgPen(width, plot.height);
          this.drawOn(svg, this.plot(width));
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
   * Columns of every strip and heights of every level: what is to be drawn.
   * @param {number} width
   */
  plot(width) {
    this.whole = this.extent();
    const left = 58,
      right = width - 84,
      x = d3.scaleLinear(this.domain || this.whole, [left, right]),
      { names, capacity } = this.timeline.arena;
    const columns = this.strips.map(({ timeline }) => this.columns(timeline, x));
    const filled = this.strips.map(({ timeline }, s) => {
      const stacks = names.map(() => new Map());
      sweepHeld(
        timeline,
        columns[s].map((list) => [...new Set(list.map((column) => column.step))].sort((a, b) => a - b)),
        (step, level, held) => stacks[level].set(step, stacked(timeline, held)),
      );
      return stacks;
    });
    let top = 8;
    const levels = names
      .map((name, level) => {
        const tallest =
          d3.max(
            filled,
            (stacks) => d3.max(stacks[level].values(), (held) => d3.sum(held, ([, units]) => units)) || 0,
          ) || 0;
        return { name, level, tallest };
      })
      .filter(({ tallest }) => tallest > 0)
      .map(({ name, level, tallest }) => {
        const bounded = capacity[level] < 2 ** 61 ? capacity[level] : null,
          near = bounded !== null && bounded < 4 * tallest,
          most = Math.max(tallest, near ? bounded : 0) * 1.06,
          at = top + 38;
        const strips = this.strips.map((strip, s) => {
          const y = at + s * (STRIP + STRIP_GAP);
          return { ...strip, top: y, bottom: y + STRIP, columns: columns[s][level], stacks: filled[s][level] };
        });
        top = at + strips.length * (STRIP + STRIP_GAP) + LEVEL_GAP;
        const words = `${shown(name, 30)} holds at most ${grouped(tallest)}${bounded === null ? "" : ` of ${grouped(bounded)}`}`;
        return { name, level, capacity: near ? bounded : null, bounded, most, title: at - 22, strips, words };
      });
    return { width, height: top + 24, left, right, x, levels };
  }

  /**
   * Where the moves of a plan are along x, per level: {x0, x1, step}, none narrower than half a pixel. Of the moves that share a
   * column the one after which the level is fullest is drawn, so that no peak is lost.
   * @param {Timeline} timeline
   */
  columns(timeline, x) {
    const [low, high] = x.range(),
      rooms = roomOverTime(timeline),
      last = rooms[0].length - 1;
    return timeline.arena.names.map((_, level) => {
      const found = [];
      let open = null;
      for (let step = 1; step <= last; step++) {
        const x0 = Math.max(low, x(this.place(timeline, step - 1))),
          x1 = Math.min(high, x(this.place(timeline, step)));
        if (x1 < low || x0 > high || x1 < x0) continue;
        if (open && (x1 - open.x0 < 1 || open.x1 - open.x0 < 0.5)) {
          open.x1 = x1;
          if (rooms[level][step] >= rooms[level][open.step]) open.step = step;
        } else {
          open = { x0, x1, step };
          found.push(open);
        }
      }
      return found;
    });
  }

  /** @param {Pen} pen */
  drawOn(pen, plot) {
    const colours = KINDS.map(([kind]) => cssValue(`--kind-${kind}`)),
      theme = {
        ink: cssValue("--ink"),
        muted: cssValue("--muted"),
        line: cssValue("--strong-line"),
        bad: cssValue("--bad"),
        paper: cssValue("--paper"),
        soft: cssValue("--soft"),
        on: cssValue("--on-level"),
      };
    for (const level of plot.levels) {
      pen.textAlign = "left";
      pen.fillStyle = theme.ink;
      pen.font = `600 13px ${FONT}`;
      pen.fillText(fitted(pen, `${shown(level.name, 30)} (${this.timeline.graph.unit})`, plot.width), 2, level.title);
      for (const strip of level.strips) this.drawStrip(pen, plot, level, strip, colours, theme);
    }
    const y = plot.height - 20;
    pen.font = `11px ${FONT}`;
    pen.fillStyle = theme.muted;
    pen.strokeStyle = theme.line;
    const unit = this.timeline.graph.energy_unit,
      energy = this.axis.value !== "moves",
      { factor, name } = energy ? energyScale(plot.x.domain()[1], unit) : { factor: 1, name: "" };
    const scale = d3.scaleLinear(
      plot.x.domain().map((n) => n / factor),
      plot.x.range(),
    );
    pen.textAlign = "center";
    rule(pen, plot.left, y, plot.right, y);
    for (const n of scale.ticks(Math.max(2, plot.width / 120))) {
      if (!energy && !Number.isInteger(n)) continue;
      rule(pen, scale(n), y, scale(n), y + 4);
      pen.fillText(grouped(n), scale(n), y + 16);
    }
    pen.textAlign = "left";
    pen.fillText(fitted(pen, energy ? `${costWord(unit)} (${name})` : "moves done", 78), plot.right + 8, y + 16);
  }

  /** @param {Pen} pen */
  drawStrip(pen, plot, level, strip, colours, theme) {
    const y = d3.scaleLinear([0, level.most], [strip.bottom, strip.top]),
      kinds = kindsOf(strip.timeline),
      { graph } = strip.timeline;
    pen.fillStyle = theme.soft;
    pen.fillRect(plot.left, strip.top, plot.right - plot.left, STRIP);
    // Neighbours in a column that are too thin to be told apart are one, and so are equal ones in neighbouring columns.
    let open = new Map();
    const flush = (box) => {
      pen.fillStyle = colours[box.kind];
      pen.fillRect(box.x0, box.high, Math.max(0.5, box.x1 - box.x0), box.low - box.high);
      if (box.value === null || box.low - box.high < 3) return;
      pen.fillStyle = theme.paper;
      pen.fillRect(box.x0, box.high, Math.max(0.5, box.x1 - box.x0), 0.8);
      const name = shown(graph.tensor_name[graph.value_tensor[box.value]], 24);
      pen.font = `11px ${FONT}`;
      if (box.low - box.high >= 13 && box.x1 - box.x0 > pen.measureText(name).width + 8) {
        pen.fillStyle = theme.on;
        pen.fillText(name, box.x0 + 4, (box.low + box.high) / 2 + 4);
      }
    };
    for (const column of strip.columns) {
      const boxes = new Map();
      let sum = 0,
        thin = null;
      const close = () => {
        if (thin) boxes.set(`${thin.kind} ${thin.low} ${thin.high}`, thin);
        thin = null;
      };
      for (const [value, units] of strip.stacks.get(column.step)) {
        const kind = value < 0 ? KINDS.length - 1 : kinds[value],
          low = y(sum),
          high = y((sum += units));
        if (low - high >= 3) {
          close();
          boxes.set(`${value} ${low} ${high}`, { ...column, kind, low, high, value: value < 0 ? null : value });
        } else if (thin && thin.kind === kind) thin.high = high;
        else {
          close();
          thin = { ...column, kind, low, high, value: null };
        }
      }
      close();
      for (const [key, box] of open) {
        const same = boxes.get(key);
        if (same && Math.abs(same.x0 - box.x1) < 0.01) {
          same.x0 = box.x0;
        } else flush(box);
      }
      open = boxes;
    }
    open.forEach(flush);
    pen.font = `11px ${FONT}`;
    pen.strokeStyle = theme.line;
    rule(pen, plot.left, strip.bottom, plot.right, strip.bottom);
    pen.textAlign = "right";
    pen.fillStyle = theme.muted;
    pen.fillText("0", plot.left - 5, strip.bottom + 3);
    if (level.capacity === null) pen.fillText(brief(level.most / 1.06), plot.left - 5, y(level.most / 1.06) + 4);
    pen.textAlign = "left";
    pen.fillStyle = theme.ink;
    pen.fillText(fitted(pen, shown(strip.plan.name, 60), plot.right - plot.left), plot.left, strip.top - 4);
    if (level.capacity !== null) {
      pen.strokeStyle = theme.bad;
      pen.setLineDash([6, 4]);
      rule(pen, plot.left, y(level.capacity), plot.right, y(level.capacity));
      pen.setLineDash([]);
      pen.fillStyle = theme.bad;
      pen.fillText("capacity", plot.right + 5, y(level.capacity) + 2);
      pen.fillText(brief(level.capacity), plot.right + 5, y(level.capacity) + 15);
    }
  }

  /**
   * Show where the player is.
   * @param {number} step
   */
  mark(step) {
    this.step = step;
    if (!this.plotted || !this.cursor) return;
    const { x, levels, left, right } = this.plotted,
      at = x(this.place(this.timeline, step));
    this.cursor.replaceChildren(
      ...levels.flatMap((level) =>
        level.strips
          .filter((strip) => strip.plan === this.plan && at >= left && at <= right)
          .map((strip) => el("div", { style: { left: `${at}px`, top: `${strip.top}px`, height: `${STRIP}px` } })),
      ),
    );
  }

  along(event) {
    return this.plotted.x.invert(event.clientX - this.holder.getBoundingClientRect().left);
  }

  /** What is under the pointer: strip, level, move, value. */
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
        const units = (level.most * (strip.bottom - py)) / STRIP;
        let sum = 0;
        for (const [value, size] of strip.stacks.get(column.step)) {
          sum += size;
          if (units < sum) return { level, strip, step: column.step, value, size };
        }
        return {
          level,
          strip,
          step: column.step,
          value: null,
          size: d3.sum(strip.stacks.get(column.step), ([, n]) => n),
        };
      }
    return null;
  }

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

const sameLevels = (a, b) =>
  a.machine.level.map((level) => level.name).join("\n") === b.machine.level.map((level) => level.name).join("\n");
