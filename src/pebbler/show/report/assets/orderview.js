// Moves from left to right, a lane per family of tiles: a sweep is a slope, a sweep back the opposite one.

/**
 * Moves from left to right.
 * @extends {LaneView<OrderFrame>}
 */
class OrderView extends LaneView {
  /** @param {(move: number) => void} onMove */
  constructor(onMove) {
    super(
      "Moves in order, a lane per family of ops, the tile as height, coloured by the level that serves the reads",
      onMove,
    );
  }

  /**
   * Lanes of the families, and below them one per pair of levels between which values are copied.
   * @param {Timeline} timeline
   * @param {number} room
   */
  rows(timeline, room) {
    const { lanes } = lanesOf(timeline.graph),
      pairs = copyPairs(timeline),
      share = (room - pairs.length * LANE_LEAST) / Math.max(1, lanes.length),
      height = lanes[0] && lanes[0].single ? Math.max(60, share) : Math.max(LANE_LEAST, Math.min(LANE_MOST, share));
    return [
      ...lanes.map((lane) => ({ ...lane, height })),
      ...pairs.map(([from, to]) => ({
        name: `${shown(timeline.arena.names[from], 12)} → ${shown(timeline.arena.names[to], 12)}`,
        axes: [],
        tiles: [1],
        ops: [],
        height: LANE_LEAST,
        count: 1,
        copy: `${from} ${to}`,
      })),
    ];
  }

  /**
   * @param {Timeline} timeline
   * @param {number} i
   */
  rowOf(timeline, i) {
    if (i < 0 || i >= timeline.length) return -1;
    const { kind, subject, level, to } = timeline.moves,
      { lanes, laneOf } = lanesOf(timeline.graph);
    if (kind[i] === COMPUTE) return laneOf[subject[i]];
    if (kind[i] !== COPY) return -1;
    return lanes.length + copyPairs(timeline).findIndex(([a, b]) => a === level[i] && b === to[i]);
  }

  /**
   * @param {LaneFrame} frame
   * @param {number} move
   * @param {Timeline} timeline
   * @returns {OrderFrame}
   */
  frame(frame, move, timeline) {
    const count = Math.max(1, timeline.length),
      room = frame.right - frame.left,
      pitch = Math.min(60, (room * this.zoomed) / count),
      shift = Math.max(0, Math.min(count * pitch - room, (move + 0.5) * pitch - room / 2));
    return { ...frame, pitch, x: (i) => frame.left + i * pitch - shift, shift };
  }

  /**
   * The rectangle of a move, null for drops.
   * @param {OrderFrame} frame
   * @param {Timeline} timeline
   * @param {number} i
   * @returns {Box | null}
   */
  mark(frame, timeline, i) {
    const row = this.rowOf(timeline, i);
    if (row < 0) return null;
    const lane = frame.lanes[row],
      wide = Math.max(frame.pitch > 5 ? frame.pitch - 1 : frame.pitch, Math.min(4, 2 + 2 * frame.pitch)); // wide enough to be seen
    if (lane.copy) return { x: frame.x(i), y: lane.y + 2, width: wide, height: lane.height - 6 };
    const room = lane.height - 2,
      tall = Math.max(Math.min(4, room), room / lane.count),
      place = lanesOf(timeline.graph).placeOf[timeline.moves.subject[i]];
    return {
      x: frame.x(i),
      y: lane.y + ((room - tall) * place) / Math.max(1, lane.count - 1),
      width: wide,
      height: tall,
    };
  }

  /**
   * @param {Pen} pen
   * @param {OrderFrame} frame
   * @param {LaneTheme} theme
   * @param {Shown} state
   */
  paint(pen, frame, theme, state) {
    const { timeline, step, move, illegal } = state,
      { level, again } = servedMoves(timeline),
      first = Math.max(0, Math.floor(frame.shift / frame.pitch) - 1),
      last = Math.min(timeline.length, Math.ceil((frame.shift + frame.right - frame.left) / frame.pitch) + 1);
    for (let i = first; i < last; i++) {
      const box = this.mark(frame, timeline, i);
      if (!box) continue;
      const colour = timeline.moves.kind[i] === COPY ? timeline.moves.to[i] : level[i];
      pen.fillStyle = colour < 0 ? theme.none : theme.colours[colour];
      pen.fillRect(box.x, box.y, box.width, box.height);
      if (again[i]) {
        pen.fillStyle = theme.ink;
        const lane = frame.lanes[this.rowOf(timeline, i)];
        pen.fillRect(box.x, lane.single ? box.y + box.height : lane.y + lane.height - 3, box.width, 2);
      }
    }
    // What is still to come is veiled.
    const now = frame.x(step);
    pen.globalAlpha = 0.55;
    pen.fillStyle = theme.paper;
    if (step > 0 && now < frame.right) pen.fillRect(now, frame.top, frame.right - now, frame.bottom - frame.top);
    pen.globalAlpha = 1;
    pen.strokeStyle = illegal ? theme.bad : theme.ink;
    pen.lineWidth = 1.5;
    if (step > 0) rule(pen, now, frame.top, now, frame.bottom);
    const box = move >= 0 ? this.mark(frame, timeline, move) : null;
    if (box) {
      pen.lineWidth = 2;
      pen.strokeRect(box.x - 2, box.y - 2, Math.max(5, box.width + 4), Math.max(6, box.height + 4));
    }
  }

  /**
   * @param {Pen} pen
   * @param {OrderFrame} frame
   * @param {LaneTheme} theme
   * @param {Timeline} timeline
   */
  axis(pen, frame, theme, timeline) {
    const room = frame.right - frame.left,
      scale = d3.scaleLinear(
        [frame.shift / frame.pitch, (frame.shift + room) / frame.pitch],
        [frame.left, frame.right],
      );
    pen.fillStyle = theme.muted;
    pen.strokeStyle = theme.none;
    pen.lineWidth = 1;
    pen.font = `11px ${FONT}`;
    pen.textAlign = "center";
    const title = frame.right - pen.measureText("moves done").width - 6;
    for (const n of scale.ticks(Math.max(2, room / 110))) {
      if (!Number.isInteger(n) || n > timeline.length) continue;
      rule(pen, scale(n), frame.bottom, scale(n), frame.bottom + 4);
      if (scale(n) + pen.measureText(grouped(n)).width / 2 < title) pen.fillText(grouped(n), scale(n), frame.bottom + 16);
    }
    pen.textAlign = "right";
    pen.fillText("moves done", frame.right, frame.bottom + 16);
    if (frame.lanes.some((lane) => lane.count > 1)) {
      pen.textAlign = "left";
      const what = frame.lanes[0].single ? "ops in program order" : "the tile, the first one at the top";
      pen.fillText(fitted(pen, `height in a lane: ${what}`, room), frame.left, frame.top - 9);
    }
    pen.textAlign = "left";
  }

  /**
   * The move at a place: the one in its column, or the nearest with a mark there.
   * @param {OrderFrame} frame
   * @param {Shown} state
   * @param {number} x
   * @param {number} y
   */
  hit(frame, { timeline }, x, y) {
    const middle = Math.floor((x - frame.left + frame.shift) / frame.pitch),
      reach = Math.ceil(4 / frame.pitch);
    let move = -1,
      least = Infinity;
    for (let i = Math.max(0, middle - reach); i <= Math.min(timeline.length - 1, middle + reach); i++) {
      const mark = this.mark(frame, timeline, i);
      if (!mark) continue;
      const far = Math.abs(y - (mark.y + mark.height / 2)) + Math.abs(i - middle) * frame.pitch;
      if (far < least) [least, move] = [far, i];
    }
    return move < 0 ? null : { move, words: () => moveWords(timeline, move) };
  }
}

/**
 * The pairs of levels between which a plan copies, in order.
 * @param {Timeline} timeline
 */
const copyPairs = (timeline) =>
  once(timeline, "copy pairs", () => {
    const { kind, level, to } = timeline.moves;
    /** @type {Map<string, [from: number, to: number]>} */
    const found = new Map();
    kind.forEach((one, i) => {
      if (one === COPY) found.set(`${level[i]} ${to[i]}`, [level[i], to[i]]);
    });
    return [...found.values()].sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  });

/**
 * A move for a read-out: what, where its reads come from, what it costs.
 * @param {Timeline} timeline
 * @param {number} i
 */
function moveWords(timeline, i) {
  const { graph, moves, arena, judgement } = timeline,
    subject = moves.subject[i],
    { again } = servedMoves(timeline);
  const what =
    moves.kind[i] === COMPUTE
      ? shown(graph.op_name[subject], 60)
      : `copy ${shown(graph.tensor_name[subject], 60)}: ${arena.names[moves.level[i]]} → ${arena.names[moves.to[i]]}`;
  return readoutLines(
    what,
    `move ${grouped(i + 1)} of ${grouped(timeline.length)}${again[i] ? ", run again" : ""}`,
    moves.kind[i] === COMPUTE ? servedWords(timeline, i) : null,
    i < judgement.steps.length ? energyText(judgement.steps[i], graph.energy_unit) : null,
  );
}
