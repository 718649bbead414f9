// Where values are on a machine of many levels: a lane for every unit that a level holds, and every read that the moves pay for.

/**
 * The reads of all legal moves: {value, level, move (from 1), units, cost}.
 * @param {Timeline} timeline
 * @returns {Read[]}
 */
const readsOf = (timeline) => once(timeline, "reads", () => makeReads(timeline));

/** @param {Timeline} timeline */
function makeReads(timeline) {
  const { graph, arena, moves, judgement } = timeline,
    { reads } = effects(graph),
    versions = versionsOf(graph);
  /** @type {Read[]} */
  const found = [];
  play(graph, arena, moves, (i, present) => {
    const next = i + 1,
      subject = moves.subject[next],
      computes = moves.kind[next] === COMPUTE;
    if (next >= judgement.played || moves.kind[next] === DROP) return;
    const read = computes ? reads[subject] : versions[subject].filter((v) => (present[v] >> moves.level[next]) & 1);
    for (const value of read) {
      const level = computes ? 31 - Math.clz32(present[value] & -present[value]) : moves.level[next], // the fastest that has it
        units = graph.value_size[value],
        cost = computes && arena.fastestOnly ? 0 : units * arena.read[level];
      found.push({ value, level, move: next + 1, units, cost });
    }
  });
  return found;
}

/**
 * What every level holds as bands in lanes, and what is read from it. Lanes are drawn, not chosen by the plan: all of a level cost the same.
 * @param {Timeline} timeline
 * @returns {Shelf[]}
 */
function shelvesOf(timeline) {
  const { graph, arena, judgement } = timeline;
  /** @type {Shelf[]} */
  const shelves = arena.names.map((name, level) => ({
      name,
      level,
      price: arena.read[level],
      capacity: arena.capacity[level] < 2 ** 52 ? arena.capacity[level] : null,
      peak: judgement.peak[level],
      energy: judgement.levels[level],
      lanes: 0,
      units: 0,
      bands: [],
      reads: [],
    }));
  for (const read of readsOf(timeline)) {
    shelves[read.level].units += read.units;
    shelves[read.level].reads.push(read);
  }
  const lives = explicitLives(timeline).map((life) => ({ ...life, to: roomFreed(timeline, life) }));
  for (const life of lives.sort((a, b) => a.from - b.from || b.to - a.to))
    if (graph.value_size[life.value] > 0)
      shelves[life.level].bands.push({ ...life, units: graph.value_size[life.value], low: 0 });
  shelves.forEach((shelf) => {
    shelf.lanes = fillLanes(shelf.bands);
  });
  return shelves;
}

/**
 * When the room of a value is free again: where results may go over operands, not when the operand is dropped, but when the result takes its room.
 * @param {Timeline} timeline
 * @param {Life} life
 */
function roomFreed({ arena, moves }, { from, to }) {
  let at = Math.floor(to) - 1;
  if (!arena.over || to !== at + 1 || moves.kind[at] !== DROP) return to;
  while (at >= from && moves.kind[at] === DROP) at--;
  return at >= from && moves.kind[at] === COMPUTE ? at + 1 : to;
}

/**
 * Give every band the lowest lanes that are free for its whole length; bands are in order of their beginning. Returns how many lanes it takes.
 * @param {Band[]} bands
 */
function fillLanes(bands) {
  /** @type {Band[]} */
  let active = []; // from the lowest lane up
  let most = 0;
  for (const band of bands) {
    active = active.filter((one) => one.to > band.from);
    let low = 0,
      at = 0;
    while (at < active.length && active[at].low - low < band.units) low = active[at].low + active[at++].units;
    band.low = low;
    active.splice(at, 0, band);
    most = Math.max(most, low + band.units);
  }
  return most;
}

/** The drawing: levels from near to far, moves from left to right, reads as heat, and each level's sums on the right. */
class DistancePlot {
  /**
   * @param {Timeline} timeline
   * @param {number} width
   */
  constructor(timeline, width) {
    this.timeline = timeline;
    this.width = width;
    this.left = 52;
    this.right = width - (width < 600 ? 118 : 230);
    this.x = d3.scaleLinear([0, Math.max(1, timeline.length)], [this.left, this.right]);
    this.perBin = Math.max(1, Math.ceil((3 * timeline.length) / (this.right - this.left))); // moves; a bin is at least 3 pixels wide
    const all = shelvesOf(timeline),
      used = all.filter((shelf) => shelf.lanes > 0 || shelf.units > 0 || shelf.energy > 0);
    this.empty = all.length - used.length;
    const height = heightsOf(used);
    let top = 26;
    this.levels = used.map((shelf) => {
      const at = top,
        bottom = at + height(shelf);
      top = bottom + HEAT + 7;
      return { ...shelf, top: at, bottom, heat: this.heatOf(shelf.reads) };
    });
    this.hottest = d3.max(this.levels, (level) => d3.max(level.heat)) || 0;
    this.height = top + 26;
  }

  /**
   * Cost of the reads per bin.
   * @param {Read[]} reads
   */
  heatOf(reads) {
    const heat = new Float64Array(Math.ceil(this.timeline.length / this.perBin));
    for (const read of reads) heat[this.binOf(read.move)] += read.cost;
    return heat;
  }

  /** @param {number} move from 1 */
  binOf(move) {
    return Math.floor((move - 1) / this.perBin);
  }

  /**
   * Of a cost, by its root: one move that reads a lot leaves the others apart.
   * @param {number} cost
   */
  colour(cost) {
    const part = this.hottest ? Math.sqrt(cost / this.hottest) : 0;
    return isDark() ? d3.interpolateInferno(0.4 + 0.55 * part) : d3.interpolateYlOrRd(0.4 + 0.6 * part);
  }

  /** @param {Pen} pen */
  drawOn(pen) {
    const colours = KINDS.map(([kind]) => cssValue(`--kind-${kind}`)),
      theme = {
        ink: cssValue("--ink"),
        muted: cssValue("--muted"),
        line: cssValue("--strong-line"),
        soft: cssValue("--soft"),
      },
      { graph } = this.timeline,
      unit = graph.energy_unit,
      { factor, name } = energyScale(d3.max(this.levels, (level) => level.energy) || 0, unit),
      most = d3.max(this.levels, (level) => level.energy) || 1,
      sums = this.sumColumns();
    pen.font = `11px ${FONT}`;
    pen.fillStyle = theme.muted;
    pen.textAlign = "right";
    pen.fillText("reads", sums.reads, 14);
    pen.fillText(fitted(pen, name === "units" ? costWord(unit) : name, 54), sums.energy, 14);
    for (const level of this.levels) {
      this.drawLevel(pen, level, colours, theme);
      const middle = (level.top + level.bottom + HEAT) / 2 + 4;
      pen.fillStyle = theme.ink;
      pen.textAlign = "left";
      pen.fillText(fitted(pen, shown(level.name, 30), this.left - 8), 2, middle);
      pen.textAlign = "right";
      pen.fillText(brief(level.units), sums.reads, middle);
      pen.fillText(brief(level.energy / factor), sums.energy, middle);
      pen.fillStyle = planColour(0);
      pen.fillRect(sums.bar, middle - 9, ((this.width - 2 - sums.bar) * level.energy) / most, 10);
    }
    this.drawAxis(pen, theme);
  }

  /** Where the sums of each level stand: right ends of two numbers, left end of a bar. */
  sumColumns() {
    const wide = this.width >= 600;
    return {
      reads: this.right + (wide ? 56 : 48),
      energy: this.right + (wide ? 112 : 96),
      bar: this.right + (wide ? 120 : 102),
    };
  }

  /**
   * @param {Pen} pen
   * @param {DrawnShelf} level
   * @param {string[]} colours
   * @param {DistanceTheme} theme
   */
  drawLevel(pen, level, colours, theme) {
    const kinds = kindsOf(this.timeline),
      { graph } = this.timeline,
      y = d3.scaleLinear([0, Math.max(1, level.lanes)], [level.bottom, level.top]),
      lane = y(0) - y(1),
      one = this.x(1) - this.x(0);
    /** @type {Map<number, Band[]>} */
    const place = new Map(); // bands of each value
    pen.fillStyle = theme.soft;
    pen.fillRect(this.left, level.top, this.right - this.left, level.bottom - level.top);
    for (const band of level.bands) {
      const x0 = this.x(band.from),
        x1 = this.x(Math.min(band.to, this.timeline.length)),
        high = y(band.low + band.units),
        tall = y(band.low) - high;
      pen.fillStyle = colours[kinds[band.value]];
      pen.fillRect(x0, high, Math.max(0.5, x1 - x0), tall > 3 ? tall - 0.8 : tall);
      entryOf(place, band.value, () => []).push(band);
    }
    // A read is a mark on its value where there is room for one; the strip below has them all.
    if (lane >= 4 && one >= 1.2)
      for (const read of level.reads) {
        const band = place.get(read.value)?.find(({ from, to }) => from < read.move && read.move <= to + 1);
        if (!band) continue;
        pen.fillStyle = this.colour(read.cost);
        pen.fillRect(
          this.x(read.move - 1),
          y(band.low + band.units),
          Math.max(1.2, one - 0.6),
          y(band.low) - y(band.low + band.units) - 0.8,
        );
      }
    pen.font = `11px ${FONT}`;
    pen.textAlign = "left";
    level.heat.forEach((cost, bin) => {
      if (!cost) return;
      const x0 = this.x(bin * this.perBin);
      pen.fillStyle = this.colour(cost);
      pen.fillRect(
        x0,
        level.bottom + 1,
        Math.max(0.5, this.x(Math.min(this.timeline.length, (bin + 1) * this.perBin)) - x0),
        HEAT,
      );
    });
    pen.strokeStyle = theme.line;
    rule(pen, this.left, level.bottom + HEAT + 1.5, this.right, level.bottom + HEAT + 1.5);
  }

  /**
   * @param {Pen} pen
   * @param {DistanceTheme} theme
   */
  drawAxis(pen, theme) {
    const y = this.height - 20;
    pen.fillStyle = theme.muted;
    pen.strokeStyle = theme.line;
    rule(pen, this.left, y, this.right, y);
    pen.textAlign = "center";
    for (const n of this.x.ticks(Math.max(2, (this.right - this.left) / 110))) {
      if (!Number.isInteger(n)) continue;
      rule(pen, this.x(n), y, this.x(n), y + 4);
      pen.fillText(grouped(n), this.x(n), y + 16);
    }
    pen.textAlign = "left";
    pen.fillText("moves done", this.right + 22, y + 16);
  }
}

const HEAT = 8, // height of the strip of reads below a level
  ROOM = 420; // for the lanes of all levels together

/**
 * Heights of levels: as many lanes of one height as they hold where that can be seen, otherwise by the root of it.
 * @param {Shelf[]} shelves
 * @returns {(shelf: Shelf) => number}
 */
function heightsOf(shelves) {
  const lanes = d3.sum(shelves, (shelf) => shelf.lanes),
    each = Math.min(12, ROOM / Math.max(1, lanes)),
    roots = d3.sum(shelves, (shelf) => Math.sqrt(shelf.lanes)) || 1;
  return ({ lanes: own }) => Math.max(10, each >= 4 ? own * each : (ROOM * Math.sqrt(own)) / roots);
}
