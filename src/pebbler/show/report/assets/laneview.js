// Plans with many ops, on canvas: a lane per family of tiles, coloured by the level that serves the reads (orderview, tilesview).

const LANE_LEAST = 17,
  LANE_MOST = 72;

/**
 * What both have in common: a frame with labels on the left, a zoom over x, the move shown kept in the middle.
 * @template {LaneFrame} Frame
 */
class LaneView {
  /**
   * @param {string} label
   * @param {(move: number) => void} onMove
   */
  constructor(label, onMove) {
    this.onMove = onMove;
    this.zoomed = 1;
    /** @type {Shown | null} */
    this.state = null;
    /** @type {Frame | null} */
    this.last = null; // the frame as it was drawn last
    this.holder = el("div", { class: "lanes", role: "img", "aria-label": label });
    this.holder.addEventListener("click", (event) => {
      const found = this.at(event);
      if (found && found.move >= 0) this.onMove(found.move);
    });
    this.holder.addEventListener("pointermove", (event) => {
      const found = event.pointerType === "touch" ? null : this.at(event);
      if (found) readout.show(event, ...found.words());
      else readout.hide();
    });
    this.holder.addEventListener("pointerleave", () => readout.hide());
    // A wheel scrolls the page; with a modifier it zooms.
    this.holder.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey || event.altKey)) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8);
    });
    new ResizeObserver(() => this.draw()).observe(this.holder);
    document.addEventListener("themechange", () => this.draw());
  }

  /** Forget the plan shown: another one comes. */
  load() {
    this.zoomed = 1;
    this.state = null;
  }

  /** @param {Shown} state */
  show(state) {
    this.state = state;
    this.draw();
  }

  /** @param {number} factor */
  zoomBy(factor) {
    this.zoomed = Math.max(1, Math.min(400, this.zoomed * factor));
    this.draw();
  }

  fit() {
    this.zoomed = 1;
    this.draw();
  }

  draw() {
    const width = Math.floor(this.holder.clientWidth),
      height = Math.floor(this.holder.clientHeight);
    if (!this.state || width < 80 || height < 60) return;
    const { canvas, pen } = canvasOf(width, height);
    this.drawOn(pen, width, height, this.state);
    this.holder.replaceChildren(canvas);
  }

  /** The drawing as SVG, at the size at which it is shown. */
  svg() {
    const pen = new SvgPen(this.holder.clientWidth, this.holder.clientHeight);
    this.drawOn(pen, pen.size[0], pen.size[1], required(this.state, "a plan in the picture"));
    return pen.node();
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   * @param {number} height
   * @param {Shown} state
   */
  drawOn(pen, width, height, state) {
    const { timeline, move } = state,
      frame = this.frame(this.laneFrame(width, height, move, timeline), move, timeline),
      colours = timeline.arena.names.map((_, i) => cssValue(`--level-${i}`));
    const theme = {
      colours,
      paper: cssValue("--paper"),
      soft: cssValue("--soft"),
      ink: cssValue("--ink"),
      muted: cssValue("--muted"),
      line: cssValue("--line"),
      none: cssValue("--strong-line"),
      bad: cssValue("--bad"),
    };
    pen.fillStyle = theme.soft;
    pen.fillRect(0, 0, width, height);
    for (const lane of frame.lanes) {
      if (lane.y > frame.bottom || lane.y + lane.height < frame.top) continue;
      pen.fillStyle = theme.paper;
      pen.fillRect(frame.left, lane.y, frame.right - frame.left, lane.height - 2);
    }
    this.paint(pen, frame, theme, state);
    // Labels last, on a ground of their own, so that nothing runs into them.
    pen.fillStyle = theme.soft;
    pen.fillRect(0, 0, frame.left - 4, height);
    pen.fillRect(frame.right, 0, width - frame.right, height);
    pen.fillRect(0, 0, width, frame.top);
    pen.fillRect(0, frame.bottom, width, height - frame.bottom);
    this.label(pen, frame, theme, timeline.graph);
    this.axis(pen, frame, theme, timeline);
    this.last = frame;
  }

  // Every kind of picture has these of its own.

  /**
   * The lanes, each with its height, given the room for all of them.
   * @param {Timeline} timeline
   * @param {number} room
   * @returns {(Lane & {height: number})[]}
   */
  rows(timeline, room) {
    throw new Error("rows");
  }

  /**
   * The row that a move is drawn in, -1 for none.
   * @param {Timeline} timeline
   * @param {number} i
   * @returns {number}
   */
  rowOf(timeline, i) {
    throw new Error("rowOf");
  }

  /**
   * Where the marks go, from where the lanes are.
   * @param {LaneFrame} lanes
   * @param {number} move
   * @param {Timeline} timeline
   * @returns {Frame}
   */
  frame(lanes, move, timeline) {
    throw new Error("frame");
  }

  /**
   * The marks in the lanes.
   * @param {Pen} pen
   * @param {Frame} frame
   * @param {LaneTheme} theme
   * @param {Shown} state
   * @returns {void}
   */
  paint(pen, frame, theme, state) {
    throw new Error("paint");
  }

  /**
   * What the sides say of the marks.
   * @param {Pen} pen
   * @param {Frame} frame
   * @param {LaneTheme} theme
   * @param {Timeline} timeline
   * @returns {void}
   */
  axis(pen, frame, theme, timeline) {
    throw new Error("axis");
  }

  /**
   * What is at a place of the picture, in pixels; null for nothing.
   * @param {Frame} frame
   * @param {Shown} state
   * @param {number} x
   * @param {number} y
   * @returns {LaneHit | null}
   */
  hit(frame, state, x, y) {
    throw new Error("hit");
  }

  /**
   * What is under the pointer; null for nothing.
   * @param {MouseEvent} event
   */
  at(event) {
    const { last: frame, state } = this,
      box = this.holder.getBoundingClientRect(),
      x = event.clientX - box.left;
    if (!frame || !state || x < frame.left || x > frame.right) return null;
    return this.hit(frame, state, x, event.clientY - box.top);
  }

  /**
   * Heights: lanes share the room; where they need more than there is, the view goes with the lane of the move shown.
   * @param {number} width
   * @param {number} height
   * @param {number} move
   * @param {Timeline} timeline
   * @returns {LaneFrame}
   */
  laneFrame(width, height, move, timeline) {
    const top = 26,
      bottom = height - 26,
      right = width - 12,
      rows = this.rows(timeline, bottom - top),
      longest = d3.max(rows, (row) => (row.single ? 14 : row.name.length)) || 0,
      left = Math.round(Math.max(width < 600 ? 60 : 96, Math.min(0.28 * width, longest * 7 + 18)));
    let y = 0;
    const lanes = rows.map((row) => {
      const lane = { ...row, y };
      y += row.height;
      return lane;
    });
    const current = this.rowOf(timeline, move),
      room = bottom - top,
      middle = current >= 0 ? lanes[current].y + lanes[current].height / 2 : 0,
      shift = y <= room ? 0 : Math.max(0, Math.min(y - room, middle - room / 2));
    for (const lane of lanes) lane.y += top - shift;
    return { width, height, left, top, right, bottom, lanes, current };
  }

  /**
   * @param {Pen} pen
   * @param {Frame} frame
   * @param {LaneTheme} theme
   * @param {Graph} graph
   */
  label(pen, frame, theme, graph) {
    pen.font = `12px ${FONT}`;
    for (const [i, lane] of frame.lanes.entries()) {
      if (lane.single) {
        this.labelOps(pen, frame, lane, theme, graph);
        continue;
      }
      const y = lane.y + Math.min(lane.height / 2 + 4, 18);
      if (y < frame.top + 8 || y > frame.bottom) continue;
      pen.textAlign = "right";
      pen.fillStyle = i === frame.current ? theme.ink : theme.muted;
      pen.font = `${i === frame.current ? "600 " : ""}12px ${FONT}`;
      pen.fillText(fitted(pen, shown(lane.name, 60), frame.left - 14), frame.left - 8, y);
    }
    pen.textAlign = "left";
  }

  /**
   * Names beside a lane of all ops: as many as there is room for.
   * @param {Pen} pen
   * @param {Frame} frame
   * @param {PlacedLane} lane
   * @param {LaneTheme} theme
   * @param {Graph} graph
   */
  labelOps(pen, frame, lane, theme, graph) {
    const every = Math.max(1, Math.ceil((16 * lane.count) / lane.height));
    pen.textAlign = "right";
    pen.fillStyle = theme.muted;
    let last = -Infinity;
    for (let place = 0; place < lane.count; place += every) {
      const middle = lane.y + ((place + 0.5) * lane.height) / lane.count + 4,
        y = Math.min(Math.max(middle, frame.top + 9), lane.y + lane.height - 4);
      if (y - last < 13) continue;
      pen.fillText(fitted(pen, shown(graph.op_name[place], 60), frame.left - 14), frame.left - 8, y);
      last = y;
    }
  }
}
