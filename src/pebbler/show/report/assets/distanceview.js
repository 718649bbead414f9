// The section on where values live, for plans that manage many levels by themselves.

const MANY_LEVELS = 5;

class DistanceView {
  /**
   * `open(step)` goes to a move of the plan shown.
   * @param {HTMLElement} section
   * @param {HTMLElement} link  to the section, among the views
   * @param {(step: number) => void} open
   */
  constructor(section, link, open) {
    this.section = section;
    this.link = link;
    this.open = open;
    /** @type {Timeline | null} */
    this.timeline = null;
    /** @type {DistancePlot | null} */
    this.plotted = null;
    this.cursor = el("div", { class: "cursors" });
    this.width = 0;
    this.step = 0;
    this.chosen = 0; // the level that keys are on
    this.holder = el("div", {
      class: "memory",
      role: "img",
      tabindex: "0",
      "aria-label": "Where values live",
      "aria-describedby": "places-now",
    });
    this.legend = el("div", { class: "legend" });
    this.words = el("figcaption", {});
    this.now = el("p", { id: "places-now", role: "status", class: "note" });
    this.files = el("div", {});
    section.append(this.legend, el("figure", {}, this.holder, this.now, this.words, this.files));
    this.listen();
    redrawn(this);
  }

  listen() {
    const { holder } = this;
    holder.addEventListener("pointermove", (event) => {
      const found = event.pointerType === "touch" ? null : this.at(event),
        [first, ...lines] = found ? this.story(found) : [];
      if (first !== undefined) readout.show(event, ...readoutLines(first, ...lines));
      else readout.hide();
    });
    holder.addEventListener("pointerleave", () => readout.hide());
    holder.addEventListener("click", (event) => {
      const found = this.at(event);
      if (found) this.open(found.step);
    });
    holder.addEventListener("keydown", (event) => {
      const along = ARROWS[event.key],
        across = event.key === "ArrowUp" ? -1 : event.key === "ArrowDown" ? 1 : 0,
        plot = this.plotted;
      if (!plot || (!along && !across)) return;
      event.preventDefault();
      event.stopPropagation();
      if (across) this.chosen = Math.max(0, Math.min(plot.levels.length - 1, this.chosen + across));
      else this.open(Math.max(0, Math.min(plot.timeline.length, this.step + along * (event.shiftKey ? 10 : 1))));
      const level = plot.levels[this.chosen];
      if (level) this.now.textContent = this.story({ plot, level, step: this.step }).join("; ");
    });
  }

  /**
   * Show the plan of the player as it is now; a cache, or few levels, is better seen in memory over time.
   * @param {Timeline} timeline
   */
  show(timeline) {
    const { arena } = (this.timeline = timeline),
      suits = arena.management === "explicit" && arena.names.length >= MANY_LEVELS && timeline.judgement.played > 0;
    this.section.hidden = this.link.hidden = !suits;
    this.plotted = null;
    this.now.textContent = "";
    if (suits) this.draw();
  }

  draw() {
    const width = Math.floor(this.holder.clientWidth);
    if (this.section.hidden || !this.timeline || width < 80) return;
    this.width = width;
    const { timeline } = this,
      { graph } = timeline,
      plot = (this.plotted = new DistancePlot(timeline, width)),
      { canvas, pen } = canvasOf(width, plot.height),
      kinds = new Set(plot.levels.flatMap((level) => level.bands.map((band) => kindsOf(timeline)[band.value]))),
      cost = costWord(graph.energy_unit);
    plot.drawOn(pen);
    this.cursor = el("div", { class: "cursors" });
    this.holder.replaceChildren(canvas, this.cursor);
    this.mark(this.step);
    this.legend.replaceChildren(
      ...[...kinds].sort((a, b) => a - b).map((i) => swatch(`var(--kind-${KINDS[i][0]})`, KINDS[i][1])),
      swatch(plot.colour(0), "a cheap read"),
      swatch(
        plot.colour(plot.hottest),
        `reads for ${energyText(plot.hottest, graph.energy_unit)} in ${plural(plot.perBin, "move")}`,
      ),
    );
    const far = plot.empty ? ` Not drawn: ${plural(plot.empty, "level")} that nothing uses.` : "";
    this.words.textContent =
      `Levels from near to far, a lane for what each holds; below each its reads, units times price. On the right its reads and its ${cost}.${far} ` +
      "Point at a value for its story; click, or use the arrow keys, to go to a move.";
    this.holder.setAttribute(
      "aria-label",
      `Where values live: ${plot.levels.map((one) => `${shown(one.name, 30)} ${plural(one.units, "read")}, ${energyText(one.energy, graph.energy_unit)}`).join("; ")}`,
    );
    const picture = () => {
      const svg = new SvgPen(width, plot.height);
      plot.drawOn(svg);
      return svg.node();
    };
    this.files.replaceChildren(filesOf("Where values live", picture, this.figures(plot)));
  }

  /**
   * Each level's sums.
   * @param {DistancePlot} plot
   */
  figures(plot) {
    const { unit, energy_unit } = plot.timeline.graph,
      cost = costWord(energy_unit);
    return asTable(
      ["level", "price of a read", `capacity (${unit})`, `most held (${unit})`, `reads (${unit})`, `${cost} of reads (${energy_unit})`, `${cost} (${energy_unit})`],
      () =>
        plot.levels.map((one) => [
          shown(one.name, 60),
          grouped(one.price),
          one.capacity === null ? "–" : grouped(one.capacity),
          grouped(one.peak),
          grouped(one.units),
          grouped(d3.sum(one.reads, (read) => read.cost)),
          grouped(one.energy),
        ]),
    ); // prettier-ignore
  }

  /**
   * Show where the player is.
   * @param {number} step
   */
  mark(step) {
    this.step = step;
    if (!this.plotted) return;
    const { x, levels } = this.plotted,
      last = levels.at(-1);
    this.cursor.replaceChildren(
      ...(last
        ? [
            el("div", {
              style: {
                left: `${x(step)}px`,
                top: `${levels[0].top}px`,
                height: `${last.bottom + HEAT - levels[0].top}px`,
              },
            }),
          ]
        : []),
    );
  }

  /**
   * What is under the pointer: level, move, band.
   * @param {MouseEvent} event
   */
  at(event) {
    const plot = this.plotted;
    if (!plot) return null;
    const box = this.holder.getBoundingClientRect(),
      { x, levels, left, right } = plot,
      px = event.clientX - box.left,
      py = event.clientY - box.top,
      level = levels.find((one) => py >= one.top && py <= one.bottom + HEAT + 2);
    if (!level || px < left || px > right) return null;
    const time = x.invert(px),
      lane = (level.lanes * (level.bottom - py)) / (level.bottom - level.top),
      band = level.bands.find(
        (one) => one.from <= time && time < one.to && one.low <= lane && lane < one.low + one.units,
      );
    return { plot, level, step: Math.min(plot.timeline.length, Math.floor(time) + 1), band };
  }

  /**
   * Lines about a level, and a value in it, around a move.
   * @param {{plot: DistancePlot, level: DrawnShelf, step: number, band?: Band}} found
   */
  story({ plot, level, step, band }) {
    const { timeline } = plot,
      { graph } = timeline,
      unit = graph.energy_unit,
      bin = plot.binOf(Math.max(1, step)),
      first = bin * plot.perBin + 1,
      last = Math.min(timeline.length, first + plot.perBin - 1),
      when = first === last ? `in move ${grouped(first)}` : `in moves ${grouped(first)} to ${grouped(last)}`,
      room = level.capacity === null ? "" : ` of ${grouped(level.capacity)}`,
      lines = [
        `${shown(level.name, 30)}: reads for ${energyText(level.heat[bin], unit)} ${when}`,
        `in all ${plural(level.units, "read")}, ${energyText(level.energy, unit)}; holds at most ${grouped(level.peak)}${room}`,
      ];
    if (!band) return lines;
    const held = Math.max(Math.ceil(band.from), Math.min(step, Math.ceil(band.to) - 1));
    return [
      shown(valueName(graph, band.value), 80),
      `${grouped(band.units)} ${graph.unit} in ${shown(level.name, 30)} from move ${grouped(Math.floor(band.from))}`,
      ...storyOf(timeline, band.value, level.level, held),
      ...lines,
    ];
  }
}

/**
 * Add the section after memory over time, with its link.
 * @param {(step: number) => void} open
 */
function addDistances(open) {
  const section = el(
      "section",
      { "aria-labelledby": "places", hidden: true },
      el("h2", { id: "places" }, "Where values live"),
    ),
    link = el("a", { href: "#places", hidden: true }, "Where values live");
  elementAt("section[aria-labelledby=memory]", HTMLElement).after(section);
  elementAt("nav.contents a[href='#memory']", HTMLElement).after(link);
  return new DistanceView(section, link, open);
}
