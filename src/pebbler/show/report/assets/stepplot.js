// The drawing of a captured PyTorch step: computation and copies side by side in time, memory against the budget.

const LANES = [
  { name: "part", top: 4, height: 14 },
  { name: "compute", top: 22, height: 30 },
  { name: "to the host", top: 58, height: 15 },
  { name: "from the host", top: 77, height: 15 },
];
const HELD_TOP = 124,
  HELD_HEIGHT = 210,
  HELD_BOTTOM = HELD_TOP + HELD_HEIGHT,
  STEP_HEIGHT = HELD_BOTTOM + 34;
/** @type {Record<string, string>} */
const PART_COLOURS = { forward: "#56b4e9", backward: "#cc79a7", optimizer: "#e69f00" };
const AGAIN_COLOUR = "#d55e00",
  COPY_COLOURS = ["", "#009e73", "#7fbf3f"]; // by engine
const HELD_COLOURS = ["#8c96a1", "#b4b9bf", "#d8c58a", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#f0e442"];

class StepPlot {
  /**
   * @param {StepTimes} times
   * @param {[number, number]} domain  the part of the step that is shown
   * @param {number} width
   */
  constructor(times, domain, width) {
    this.times = times;
    this.domain = domain;
    this.left = width < 500 ? 46 : 92;
    this.right = width - 8;
    this.x = d3.scaleLinear(domain, [this.left, this.right]);
    const { plan, limit } = times;
    this.most = plan.judgement.peak[0] || 1;
    if (plan.budget && plan.budget.budget !== null && limit !== null) this.most = Math.max(this.most, limit);
    if (times.unlimited) this.most = Math.max(this.most, d3.max(times.unlimited.held) ?? 0);
    this.y = d3.scaleLinear([0, 1.06 * this.most], [HELD_BOTTOM, HELD_TOP]);
    this.columns = this.fullest();
  }

  /** Per pixel the number of moves done: the fullest moment in it, or what was held last before it. */
  fullest() {
    const { times, x } = this,
      { clock } = times.time,
      columns = [];
    let step = 0;
    for (let px = this.left; px < this.right; px++) {
      const until = x.invert(px + 1);
      let best = step;
      while (step + 1 < clock.length && clock[step + 1] <= until) {
        step++;
        if (clock[step] >= x.invert(px) && times.heldAt(step) > times.heldAt(best)) best = step;
      }
      if (clock[best] < x.invert(px)) best = step;
      columns.push(best);
      step = Math.max(step, best);
    }
    return columns;
  }

  /**
   * The number of moves done where the memory is pointed at.
   * @param {number} px
   */
  stepAt(px) {
    const column = Math.floor(px - this.left);
    return this.columns[Math.max(0, Math.min(this.columns.length - 1, column))] ?? 0;
  }

  /**
   * The move at a place: on a lane the one that runs there, in the memory the last one before; null: none.
   * @param {number} px
   * @param {number} py
   */
  moveAt(px, py) {
    const at = this.x.invert(px),
      { time, moves } = this.times,
      lane = LANES.findIndex(({ top, height }) => py >= top && py <= top + height);
    if (py >= HELD_TOP) return this.stepAt(px) - 1 < 0 ? null : this.stepAt(px) - 1;
    if (lane < 0) return null;
    const engine = lane < 2 ? 0 : lane - 1,
      slack = Math.abs(this.x.invert(px + 1) - at);
    /** @type {number | null} */
    let best = null;
    for (let i = 0; i < moves.kind.length; i++) {
      if (time.engine[i] !== engine || time.began[i] > at + slack || time.ended[i] < at - slack) continue;
      if (best === null || time.began[i] <= at) best = i;
    }
    return best;
  }

  /** @param {Pen} pen */
  drawOn(pen) {
    const { left, right } = this,
      muted = cssValue("--muted");
    pen.fillStyle = cssValue("--soft");
    pen.fillRect(left, HELD_TOP, right - left, HELD_HEIGHT);
    pen.font = `11px ${FONT}`;
    pen.textAlign = "right";
    pen.fillStyle = muted;
    const copying = this.times.time.engine.some((engine) => engine > 0);
    LANES.forEach((lane, i) => {
      if (i < 2 || copying) pen.fillText(fitted(pen, lane.name, left - 6), left - 6, lane.top + lane.height / 2 + 4);
    });
    this.drawMoves(pen);
    this.drawHeld(pen, muted);
    this.drawTime(pen, muted);
  }

  /**
   * Boxes of ops and copies; what is thinner than half a pixel is drawn together with its neighbours.
   * @param {Pen} pen
   */
  drawMoves(pen) {
    const { x, left, right, times } = this,
      { time, moves, graph, step, again } = times,
      [from, to] = this.domain;
    const last = LANES.map(() => ({ x: -1, colour: "" }));
    /** @type {(lane: number, began: number, ended: number, colour: string, label: string) => void} */
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
    for (const { part, began, ended } of this.parts()) box(0, began, ended, PART_COLOURS[part], part);
    for (let i = 0; i < moves.kind.length; i++) {
      const engine = time.engine[i],
        subject = moves.subject[i];
      if (engine === 0)
        box(1, time.began[i], time.ended[i], again[i] ? AGAIN_COLOUR : PART_COLOURS[step.op_part[subject]], shown(graph.op_name[subject], 60)); // prettier-ignore
      else if (engine > 0)
        box(engine + 1, time.began[i], time.ended[i], COPY_COLOURS[engine], shown(graph.tensor_name[subject], 60));
    }
    pen.fillStyle = cssValue("--ink");
  }

  /** Stretches of the computation that belong to the same part of the step. */
  parts() {
    const { time, moves, step } = this.times;
    /** @type {{part: string, began: number, ended: number}[]} */
    const parts = [];
    for (let i = 0; i < moves.kind.length; i++) {
      if (time.engine[i] !== 0) continue;
      const part = step.op_part[moves.subject[i]],
        open = parts[parts.length - 1];
      if (open && open.part === part) open.ended = time.ended[i];
      else parts.push({ part, began: time.began[i], ended: time.ended[i] });
    }
    return parts;
  }

  /**
   * @param {Pen} pen
   * @param {string} muted
   */
  drawHeld(pen, muted) {
    const { left, right, times, most, y } = this,
      { held, limit } = times,
      width = HELD_FOR.length;
    if (times.unlimited) this.drawUnlimited(pen, times.unlimited);
    for (let k = 0; k < width; k++) {
      pen.fillStyle = HELD_COLOURS[k];
      /** @type {{x: number, end: number, low: number, high: number}[]} */
      const boxes = [];
      this.columns.forEach((at, c) => {
        let below = 0;
        for (let j = 0; j < k; j++) below += held[at * width + j];
        const low = y(below),
          high = y(below + held[at * width + k]),
          open = boxes[boxes.length - 1];
        if (open && open.low === low && open.high === high) open.end = left + c + 1;
        else boxes.push({ x: left + c, end: left + c + 1, low, high });
      });
      for (const box of boxes) if (box.low - box.high > 0.05) pen.fillRect(box.x, box.high, box.end - box.x, box.low - box.high); // prettier-ignore
    }
    pen.font = `11px ${FONT}`;
    pen.strokeStyle = muted;
    pen.fillStyle = muted;
    pen.textAlign = "right";
    const [factor, name] = byteScale(most);
    for (const n of d3.ticks(0, most / factor, 4)) pen.fillText(grouped(n), left - 6, y(n * factor) + 4);
    pen.fillText(name, left - 6, HELD_TOP - 6);
    if (limit === null) return;
    pen.strokeStyle = cssValue("--bad");
    pen.setLineDash([6, 4]);
    rule(pen, left, y(limit), right, y(limit));
    pen.setLineDash([]);
    pen.fillStyle = cssValue("--bad");
    const { budget } = times.plan;
    const words = budget && budget.budget !== null ? `budget ${bytesText(budget.budget)}${budget.headroom ? " less headroom" : ""}` : `capacity ${bytesText(limit)}`; // prettier-ignore
    pen.fillText(words, right, y(limit) - 5);
  }

  /**
   * What the step holds without a limit, in its own time: the fullest moment of every pixel, as an area behind the rest.
   * @param {Pen} pen
   * @param {UnlimitedStep} unlimited
   */
  drawUnlimited(pen, unlimited) {
    const { x, y, left, right } = this;
    let began = 0;
    /** @type {Map<number, number>} */
    const most = new Map();
    unlimited.held.forEach((bytes, o) => {
      const ended = began + unlimited.cost[o];
      for (let px = Math.max(left, Math.floor(x(began))); px <= Math.min(right - 1, x(ended)); px++)
        most.set(px, Math.max(most.get(px) || 0, bytes));
      began = ended;
    });
    for (const [px, bytes] of most) {
      pen.fillStyle = cssValue("--line");
      pen.fillRect(px, y(bytes), 1, HELD_BOTTOM - y(bytes));
      pen.fillStyle = cssValue("--muted");
      pen.fillRect(px, y(bytes), 1, 1.5);
    }
  }

  /**
   * @param {Pen} pen
   * @param {string} muted
   */
  drawTime(pen, muted) {
    const { left, right } = this,
      [from, to] = this.domain,
      { factor, name } = energyScale(this.times.time.total, this.times.unit);
    pen.strokeStyle = pen.fillStyle = muted;
    rule(pen, left, HELD_BOTTOM, right, HELD_BOTTOM);
    pen.textAlign = "center";
    const scale = d3.scaleLinear([from / factor, to / factor], [left, right]);
    for (const n of scale.ticks(Math.max(2, (right - left) / 110))) {
      rule(pen, scale(n), HELD_BOTTOM, scale(n), HELD_BOTTOM + 4);
      if (scale(n) < right - 24) pen.fillText(`${n}`, scale(n), HELD_BOTTOM + 16);
    }
    pen.textAlign = "right";
    pen.fillText(name, right, HELD_BOTTOM + 30);
  }
}
