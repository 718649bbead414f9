// A fixed grid of families and tiles, and the way of the last moves over it.

const TRAIL = 12; // ops

/**
 * Families and tiles as a fixed grid.
 * @extends {LaneView<TilesFrame>}
 */
class TilesView extends LaneView {
  /** @param {(move: number) => void} onMove */
  constructor(onMove) {
    super("Families of ops as rows and tiles as columns, coloured by the level that serves the reads", onMove);
  }

  /**
   * @param {Timeline} timeline
   * @param {number} room
   */
  rows(timeline, room) {
    /** @param {Lane} lane */
    const depth = (lane) => lane.count / lane.tiles[0];
    const { lanes } = lanesOf(timeline.graph),
      deep = lanes.filter((lane) => depth(lane) > 1).length,
      plain = Math.max(LANE_LEAST, Math.min(LANE_MOST * 0.75, room / Math.max(1, lanes.length))),
      rest = Math.max(0, room - plain * (lanes.length - deep));
    return lanes.map((lane) => ({
      ...lane,
      height: depth(lane) > 1 ? Math.max(Math.min(96, 3 * depth(lane)), Math.min(110, rest / deep)) : plain,
    }));
  }

  /**
   * @param {Timeline} timeline
   * @param {number} i
   */
  rowOf(timeline, i) {
    return i >= 0 && i < timeline.length && timeline.moves.kind[i] === COMPUTE
      ? lanesOf(timeline.graph).laneOf[timeline.moves.subject[i]]
      : -1;
  }

  /**
   * @param {LaneFrame} frame
   * @param {number} move
   * @param {Timeline} timeline
   * @returns {TilesFrame}
   */
  frame(frame, move, timeline) {
    const room = frame.right - frame.left,
      all = room * this.zoomed,
      place = lanesOf(timeline.graph).placeOf[timeline.moves.subject[move]],
      at = frame.current >= 0 ? this.spot(frame.lanes[frame.current], place).x * all : 0,
      shift = Math.max(0, Math.min(all - room, at - room / 2));
    return { ...frame, all, shift };
  }

  /**
   * Where the cell of a place is in its lane, as fractions.
   * @param {Lane} lane
   * @param {number} place
   */
  spot(lane, place) {
    const inner = lane.count / lane.tiles[0],
      column = Math.floor(place / inner),
      line = place % inner;
    return { x: column / lane.tiles[0], y: line / inner, width: 1 / lane.tiles[0], height: 1 / inner };
  }

  /**
   * @param {TilesFrame} frame
   * @param {Graph} graph
   * @param {number} op
   */
  cell(frame, graph, op) {
    const { laneOf, placeOf } = lanesOf(graph),
      lane = frame.lanes[laneOf[op]],
      { x, y, width, height } = this.spot(lane, placeOf[op]),
      room = lane.height - 2,
      wide = width * frame.all;
    return {
      x: frame.left - frame.shift + x * frame.all,
      y: lane.y + y * room,
      width: Math.max(0.75, wide > 5 ? wide - 1 : wide),
      height: Math.max(0.75, height * room > 5 ? height * room - 1 : height * room),
    };
  }

  /**
   * @param {Pen} pen
   * @param {TilesFrame} frame
   * @param {LaneTheme} theme
   * @param {Shown} state
   */
  paint(pen, frame, theme, state) {
    const { timeline, step, move, illegal } = state,
      { graph } = timeline,
      { level } = servedMoves(timeline),
      { kind, subject } = timeline.moves;
    // An op's cell has the colour of its last run so far; before its first run a pale one, that of the run to come.
    const colour = new Int8Array(graph.op_name.length).fill(-2),
      ran = new Uint8Array(graph.op_name.length);
    for (let i = 0; i < timeline.length; i++) {
      if (kind[i] !== COMPUTE) continue;
      const o = subject[i];
      if (i < step) ran[o] = 1;
      if (i < step || colour[o] === -2) colour[o] = level[i];
    }
    for (let o = 0; o < colour.length; o++) {
      const box = this.cell(frame, graph, o);
      if (
        box.x > frame.right ||
        box.x + box.width < frame.left ||
        box.y > frame.bottom ||
        box.y + box.height < frame.top
      )
        continue;
      pen.globalAlpha = ran[o] ? 1 : 0.25;
      pen.fillStyle = colour[o] < 0 ? theme.none : theme.colours[colour[o]];
      pen.fillRect(box.x, box.y, box.width, box.height);
    }
    pen.globalAlpha = 1;
    this.trail(pen, frame, theme, state);
    if (move >= 0 && kind[move] === COMPUTE) {
      const box = this.cell(frame, graph, subject[move]);
      pen.strokeStyle = illegal ? theme.bad : theme.ink;
      pen.lineWidth = 2.5;
      pen.strokeRect(box.x - 2, box.y - 2, Math.max(6, box.width + 4), Math.max(6, box.height + 4));
    }
  }

  /**
   * The way over the grid of the last moves.
   * @param {Pen} pen
   * @param {TilesFrame} frame
   * @param {LaneTheme} theme
   * @param {Shown} state
   */
  trail(pen, frame, theme, { timeline, move }) {
    /** @type {[x: number, y: number][]} */
    const spots = [];
    for (let i = move; i >= 0 && spots.length < TRAIL; i--) {
      if (timeline.moves.kind[i] !== COMPUTE) continue;
      const box = this.cell(frame, timeline.graph, timeline.moves.subject[i]);
      spots.push([box.x + box.width / 2, box.y + box.height / 2]);
    }
    pen.strokeStyle = theme.ink;
    for (let k = spots.length - 1; k > 0; k--) {
      pen.globalAlpha = 0.15 + 0.75 * (1 - k / TRAIL);
      pen.lineWidth = 1.5;
      rule(pen, spots[k][0], spots[k][1], spots[k - 1][0], spots[k - 1][1]);
    }
    pen.globalAlpha = 1;
  }

  /**
   * @param {Pen} pen
   * @param {TilesFrame} frame
   * @param {LaneTheme} theme
   */
  axis(pen, frame, theme) {
    const widest = frame.lanes.reduce((best, lane) => (lane.tiles[0] > best.tiles[0] ? lane : best), frame.lanes[0]);
    pen.fillStyle = theme.muted;
    pen.font = `11px ${FONT}`;
    const count = widest.tiles[0],
      every = Math.max(1, Math.ceil((36 * count) / frame.all));
    pen.textAlign = "center";
    for (let k = 0; k < count; k += every) {
      const x = frame.left - frame.shift + ((k + 0.5) / count) * frame.all;
      if (x > frame.left && x < frame.right) pen.fillText(grouped(k), x, frame.top - 8);
    }
    pen.textAlign = "right";
    const axes = [...new Set(frame.lanes.flatMap((lane) => lane.axes.slice(0, 1)))].map((axis) => shown(axis, 16));
    pen.fillText(
      fitted(pen, `tile of ${axes.slice(0, 3).join(" or ")}`, frame.left - 14),
      frame.left - 8,
      frame.top - 8,
    );
    const inner = [...new Set(frame.lanes.flatMap((lane) => lane.axes.slice(1)))].map((axis) => shown(axis, 16));
    pen.textAlign = "left";
    const words = `${inner.length ? `Within a row, tiles of ${inner.slice(0, 3).join(" and ")} from top to bottom. ` : ""}The line: the last ${TRAIL} ops that ran.`;
    pen.fillText(fitted(pen, words, frame.right - frame.left), frame.left, frame.bottom + 17);
  }

  /**
   * The cell at a place.
   * @param {TilesFrame} frame
   * @param {Shown} state
   * @param {number} x
   * @param {number} y
   */
  hit(frame, state, x, y) {
    const { placeOf } = lanesOf(state.timeline.graph),
      lane = frame.lanes.find((one) => y >= one.y && y < one.y + one.height);
    if (!lane) return null;
    const column = Math.floor(((x - frame.left + frame.shift) / frame.all) * lane.tiles[0]),
      inner = lane.count / lane.tiles[0],
      line = Math.min(inner - 1, Math.floor(((y - lane.y) / (lane.height - 2)) * inner)),
      op = lane.ops.find((o) => placeOf[o] === column * inner + line);
    if (op === undefined) return null;
    const move = this.runOf(op, state);
    return { move, words: () => this.words(op, move, state.timeline) };
  }

  /**
   * The last run of an op so far, or the next one.
   * @param {number} op
   * @param {Shown} state
   */
  runOf(op, { timeline, step }) {
    const { kind, subject } = timeline.moves;
    let found = -1;
    for (let i = 0; i < timeline.length && (i < step || found < 0); i++)
      if (kind[i] === COMPUTE && subject[i] === op) found = i;
    return found;
  }

  /**
   * Lines of a read-out about an op and its run in a move.
   * @param {number} op
   * @param {number} move
   * @param {Timeline} timeline
   */
  words(op, move, timeline) {
    const { kind, subject } = timeline.moves,
      runs = kind.filter((one, i) => one === COMPUTE && subject[i] === op).length;
    if (move < 0) return readoutLines(shown(timeline.graph.op_name[op], 60), "does not run in this plan");
    return [...moveWords(timeline, move), ...(runs > 1 ? [el("br"), `runs ${runs} times`] : [])];
  }
}
