// The running energy under the player: a line over the moves, with a marker at the move shown.

class RunningEnergy {
  /** @param {(step: number) => void} onMove  goes to where the line was clicked */
  constructor(onMove) {
    this.step = 0;
    /** @type {{timeline: Timeline, given: Timeline} | null} */
    this.shown = null;
    /** @type {{timeline: Timeline, x: D3Scale, y: D3Scale, factor: number, marker: D3Selection<undefined, SVGGElement, undefined>} | null} */
    this.drawn = null;
    this.element = el("div", { class: "chart strip", role: "img", "aria-label": "Running cost over the moves" });
    this.element.addEventListener("pointermove", (event) => this.point(event));
    this.element.addEventListener("pointerleave", () => readout.hide());
    this.element.addEventListener("click", (event) => {
      const step = this.stepAt(event);
      if (step !== null) onMove(step);
    });
    new ResizeObserver(() => this.draw()).observe(this.element);
    document.addEventListener("themechange", () => this.draw());
  }

  /**
   * Show a timeline, and behind it the plan as given where that is another.
   * @param {Timeline} timeline
   * @param {Timeline} given
   */
  show(timeline, given) {
    this.shown = { timeline, given };
    this.draw();
  }

  draw() {
    if (!this.shown) return;
    const { timeline, given } = this.shown,
      width = Math.floor(this.element.clientWidth),
      height = 130,
      unit = timeline.graph.energy_unit;
    if (width < 80) return;
    const edited = timeline !== given,
      lines = edited ? [given, timeline] : [timeline];
    const most = d3.max(lines, (t) => t.running[t.running.length - 1]) || 1,
      { factor, name } = energyScale(most, unit);
    const x = d3.scaleLinear([0, Math.max(1, timeline.length)], [52, width - 12]),
      y = d3.scaleLinear([0, most / factor], [height - 34, 12]).nice();
    const svg = d3.create("svg").attr("width", width).attr("height", height).attr("viewBox", [0, 0, width, height]);
    svg
      .append("g")
      .attr("transform", `translate(0,${height - 34})`)
      .call(
        d3
          .axisBottom(x)
          .ticks(Math.min(10, width / 80, timeline.length))
          .tickFormat((n) => (Number.isInteger(n) ? d3.format(",")(n) : "")),
      );
    svg.append("g").attr("transform", "translate(52,0)").call(d3.axisLeft(y).ticks(3));
    svg
      .append("text")
      .attr("x", width - 12)
      .attr("y", height - 3)
      .attr("text-anchor", "end")
      .text("moves done");
    svg
      .append("text")
      .attr("x", 58)
      .attr("y", 11)
      .text(`${costWord(unit)} so far (${name})${edited ? "; the plan as given in grey" : ""}`);
    const path = d3
      .line(
        (d) => x(d[0]),
        (d) => y(d[1] / factor),
      )
      .curve(d3.curveStepAfter);
    lines.forEach(({ running }) => {
      const every = Math.max(1, Math.floor(running.length / 1500));
      /** @type {[number, number][]} */
      const all = running.map((e, i) => [i, e]);
      const points = all.filter(([i]) => i % every === 0 || i === running.length - 1);
      svg
        .append("path")
        .attr("fill", "none")
        .attr("stroke-width", 2)
        .style("stroke", running === timeline.running ? planColour(0) : "var(--strong-line)")
        .attr("d", path(points));
    });
    const marker = svg.append("g");
    marker
      .append("line")
      .attr("y1", 12)
      .attr("y2", height - 34)
      .style("stroke", "var(--ink)");
    marker.append("circle").attr("r", 4).style("fill", "var(--ink)");
    this.drawn = { timeline, x, y, factor, marker };
    this.element.replaceChildren(svg.node());
    this.mark(this.step);
  }

  /**
   * The number of moves at the pointer, null before anything is drawn.
   * @param {MouseEvent} event
   */
  stepAt(event) {
    if (!this.drawn) return null;
    const at = this.drawn.x.invert(event.clientX - this.element.getBoundingClientRect().left);
    return Math.max(0, Math.min(this.drawn.timeline.length, Math.round(at)));
  }

  /** @param {PointerEvent} event */
  point(event) {
    const step = this.stepAt(event);
    if (!this.drawn || step === null || event.pointerType === "touch") return;
    const { timeline } = this.drawn,
      { steps } = timeline.judgement,
      unit = timeline.graph.energy_unit;
    readout.show(
      event,
      ...readoutLines(
        `${energyText(timeline.energyAt(step), unit)} after ${plural(step, "move")}`,
        step > 0 && step <= steps.length
          ? `the last one: ${moveName(timeline, step - 1)}, ${energyText(steps[step - 1], unit)}`
          : null,
      ),
    );
  }

  /**
   * Put the marker after `step` moves.
   * @param {number} step
   */
  mark(step) {
    this.step = step;
    if (!this.drawn) return;
    const { timeline, x, y, factor, marker } = this.drawn;
    marker.attr("transform", `translate(${x(step)},0)`);
    marker.select("circle").attr("cy", y(timeline.energyAt(step) / factor));
  }
}
