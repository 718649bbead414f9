// The drawing of memory over time: a strip for every level and plan, columns of what the level holds.

const STRIP = 96,
  STRIP_GAP = 24,
  LEVEL_GAP = 18;

/**
 * Where a move ends along the axis.
 * @param {string} along "moves" or "energy"
 * @param {Timeline} timeline
 * @param {number} step
 */
const placeAlong = (along, timeline, step) => (along === "moves" ? step : timeline.energyAt(step));

/**
 * From where to where the plans reach along the axis.
 * @param {{plan: PlanData, timeline: Timeline}[]} strips
 * @param {string} along
 * @returns {[number, number]}
 */
const extentOf = (strips, along) => [
  0,
  d3.max(strips, ({ timeline }) => placeAlong(along, timeline, timeline.length)) || 1,
];

/** Columns of every strip and heights of every level, and how they are drawn. */
class MemoryPlot {
  /**
   * `domain` is the part of the axis to show, null for all of it.
   * @param {{plan: PlanData, timeline: Timeline}[]} strips
   * @param {string} along
   * @param {[number, number] | null} domain
   * @param {number} width
   */
  constructor(strips, along, domain, width) {
    this.along = along;
    this.timeline = strips[strips.length - 1].timeline;
    this.width = width;
    this.left = 58;
    this.right = width - 84;
    this.x = d3.scaleLinear(domain || extentOf(strips, along), [this.left, this.right]);
    const { names, capacity } = this.timeline.arena,
      columns = strips.map(({ timeline }) => this.columns(timeline));
    const filled = strips.map(({ timeline }, s) => {
      /** @type {Map<number, Held[]>[]} */
      const stacks = names.map(() => new Map());
      sweepHeld(
        timeline,
        columns[s].map((list) => [...new Set(list.map((column) => column.step))].sort((a, b) => a - b)),
        (step, level, held) => stacks[level].set(step, stacked(timeline, held)),
      );
      return stacks;
    });
    let top = 8;
    this.levels = names
      .map((name, level) => {
        const tallest =
          d3.max(
            filled,
            (stacks) => d3.max(stacks[level].values(), (held) => d3.sum(held, ([, units]) => units)) || 0,
          ) || 0;
        // The scale stays when the view is zoomed.
        const whole = d3.max(strips, ({ timeline }) => d3.max(roomOverTime(timeline)[level])) || 0;
        return { name, level, tallest: Math.max(tallest, whole) };
      })
      .filter(({ tallest }) => tallest > 0)
      .map(({ name, level, tallest }) => {
        const bounded = capacity[level] < 2 ** 61 ? capacity[level] : null,
          near = bounded !== null && bounded < 4 * tallest,
          most = Math.max(tallest, near && bounded !== null ? bounded : 0) * 1.06,
          at = top + 38;
        const drawn = strips.map((strip, s) => {
          const y = at + s * (STRIP + STRIP_GAP);
          return { ...strip, top: y, bottom: y + STRIP, columns: columns[s][level], stacks: filled[s][level] };
        });
        top = at + strips.length * (STRIP + STRIP_GAP) + LEVEL_GAP;
        const words = `${shown(name, 30)} holds at most ${grouped(tallest)}${bounded === null ? "" : ` of ${grouped(bounded)}`}`;
        return { name, level, capacity: near ? bounded : null, bounded, most, title: at - 22, strips: drawn, words };
      });
    this.height = top + 24;
  }

  /**
   * Where the moves of a plan are along x, per level: {x0, x1, step}, few narrower than a pixel. Of the moves that share a
   * column the one after which the level is fullest is drawn, so that no peak is lost.
   * @param {Timeline} timeline
   */
  columns(timeline) {
    const { x } = this,
      [low, high] = x.range(),
      rooms = roomOverTime(timeline),
      // Thousands of values in each of a thousand columns would take seconds: then columns are a few pixels wide.
      least = Math.max(1, Math.min(4, timeline.graph.value_tensor.length / 2500)),
      last = rooms[0].length - 1;
    return timeline.arena.names.map((_, level) => {
      /** @type {Column[]} */
      const found = [];
      /** @type {Column | null} */
      let open = null;
      for (let step = 1; step <= last; step++) {
        const x0 = Math.max(low, x(placeAlong(this.along, timeline, step - 1))),
          x1 = Math.min(high, x(placeAlong(this.along, timeline, step)));
        if (x1 < low || x0 > high || x1 < x0) continue;
        if (open && (x1 - open.x0 < least || open.x1 - open.x0 < least / 2)) {
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
  drawOn(pen) {
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
    for (const level of this.levels) {
      pen.textAlign = "left";
      pen.fillStyle = theme.ink;
      pen.font = `600 13px ${FONT}`;
      pen.fillText(fitted(pen, `${shown(level.name, 30)} (${this.timeline.graph.unit})`, this.width), 2, level.title);
      for (const strip of level.strips) this.drawStrip(pen, level, strip, colours, theme);
    }
    const y = this.height - 20;
    pen.font = `11px ${FONT}`;
    pen.fillStyle = theme.muted;
    pen.strokeStyle = theme.line;
    const unit = this.timeline.graph.energy_unit,
      energy = this.along !== "moves",
      { factor, name } = energy ? energyScale(this.x.domain()[1], unit) : { factor: 1, name: "" };
    const [low, high] = this.x.domain(),
      scale = d3.scaleLinear([low / factor, high / factor], this.x.range());
    const title = energy ? `${costWord(unit)} (${name})` : "moves done",
      end = this.width - 2 - pen.measureText(title).width; // numbers end before it begins
    pen.textAlign = "center";
    rule(pen, this.left, y, this.right, y);
    for (const n of scale.ticks(Math.max(2, this.width / 120))) {
      if (!energy && !Number.isInteger(n)) continue;
      rule(pen, scale(n), y, scale(n), y + 4);
      const number = grouped(n);
      if (scale(n) + pen.measureText(number).width / 2 < end - 4) pen.fillText(number, scale(n), y + 16);
    }
    pen.textAlign = "right";
    pen.fillText(title, this.width - 2, y + 16);
    pen.textAlign = "left";
  }

  /**
   * @param {Pen} pen
   * @param {MemoryPlot["levels"][number]} level
   * @param {MemoryPlot["levels"][number]["strips"][number]} strip
   * @param {string[]} colours
   * @param {Record<"ink" | "muted" | "line" | "bad" | "paper" | "soft" | "on", string>} theme
   */
  drawStrip(pen, level, strip, colours, theme) {
    const y = d3.scaleLinear([0, level.most], [strip.bottom, strip.top]),
      kinds = kindsOf(strip.timeline),
      { graph } = strip.timeline;
    pen.fillStyle = theme.soft;
    pen.fillRect(this.left, strip.top, this.right - this.left, STRIP);
    // Neighbours in a column that are too thin to be told apart are one, and so are equal ones in neighbouring columns.
    /** @typedef {Column & {kind: number, low: number, high: number, value: number | null}} Stacked */
    /** @type {Map<string, Stacked>} */
    let open = new Map();
    /** @param {Stacked} box */
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
      /** @type {Map<string, Stacked>} */
      const boxes = new Map();
      /** @type {Stacked | null} */
      let thin = null;
      let sum = 0;
      const close = () => {
        if (thin) boxes.set(`${thin.kind} ${thin.low} ${thin.high}`, thin);
        thin = null;
      };
      for (const [value, units] of strip.stacks.get(column.step) || []) {
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
    rule(pen, this.left, strip.bottom, this.right, strip.bottom);
    pen.textAlign = "right";
    pen.fillStyle = theme.muted;
    pen.fillText("0", this.left - 5, strip.bottom + 3);
    if (level.capacity === null) pen.fillText(brief(level.most / 1.06), this.left - 5, y(level.most / 1.06) + 4);
    pen.textAlign = "left";
    pen.fillStyle = theme.ink;
    pen.fillText(fitted(pen, shown(strip.plan.name, 60), this.right - this.left), this.left, strip.top - 4);
    if (level.capacity !== null) {
      pen.strokeStyle = theme.bad;
      pen.setLineDash([6, 4]);
      rule(pen, this.left, y(level.capacity), this.right, y(level.capacity));
      pen.setLineDash([]);
      pen.fillStyle = theme.bad;
      pen.fillText("capacity", this.right + 5, y(level.capacity) + 2);
      pen.fillText(brief(level.capacity), this.right + 5, y(level.capacity) + 15);
    }
  }
}
