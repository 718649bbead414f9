// The running energy under the player: a line over the moves, with a marker at the move shown.

class RunningEnergy {
  /** `onMove(step)` goes to where the line was clicked. */
  constructor(onMove) {
    this.step = 0;
    this.element = el("div", { class: "chart strip", role: "img", "aria-label": "Running cost over the moves" });
    this.element.addEventListener("pointermove", (event) => this.point(event));
    this.element.addEventListener("pointerleave", () => readout.hide());
    this.element.addEventListener("click", (event) => onMove(this.stepAt(event)));
    new ResizeObserver(() => this.draw()).observe(this.element);
    document.addEventListener("themechange", () => this.draw());
  }

  /**
   * Show a timeline, and behind it the plan as given where that is another.
   * @param {Timeline} timeline
   */
  show(timeline, given) {
    this.timeline = timeline;
    this.given = given;
    this.draw();
  }

  draw() {
    if (!this.timeline) return;
    const width = Math.floor(this.element.clientWidth),
      height = 130,
      unit = this.timeline.graph.energy_unit;
    if (width < 80) return;
    const edited = this.timeline !== this.given,
      lines = edited ? [this.given, this.timeline] : [this.timeline];
    const most = d3.max(lines, (t) => t.running[t.running.length - 1]) || 1,
      { factor, name } = energyScale(most, unit);
    const x = d3.scaleLinear([0, Math.max(1, this.timeline.length)], [52, width - 12]),
      y = d3.scaleLinear([0, most / factor], [height - 34, 12]).nice();
    const svg = d3.create("svg").attr("width", width).attr("height", height).attr("viewBox", [0, 0, width, height]);
    svg
      .append("g")
      .attr("transform", `translate(0,${height - 34})`)
      .call(
        d3
          .axisBottom(x)
          .ticks(Math.min(10, width / 80, this.timeline.length))
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
    lines.forEach((timeline) => {
      const every = Math.max(1, Math.floor(timeline.running.length / 1500));
      const points = timeline.running
        .map((e, i) => [i, e])
        .filter(([i]) => i % every === 0 || i === timeline.running.length - 1);
      svg
        .append("path")
        .attr("fill", "none")
        .attr("stroke-width", 2)
        .style("stroke", timeline === this.timeline ? planColour(0) : "var(--strong-line)")
        .attr("d", path(points));
    });
    this.marker = svg.append("g");
    this.marker
      .append("line")
      .attr("y1", 12)
      .attr("y2", height - 34)
      .style("stroke", "var(--ink)");
    this.marker.append("circle").attr("r", 4).style("fill", "var(--ink)");
    this.scales = { x, y, factor };
    this.element.replaceChildren(svg.node());
    this.mark(this.step);
  }

  stepAt(event) {
    const at = this.scales.x.invert(event.clientX - this.element.getBoundingClientRect().left);
    return Math.max(0, Math.min(this.timeline.length, Math.round(at)));
  }

  point(event) {
    if (!this.scales || event.pointerType === "touch") return;
    const step = this.stepAt(event),
      unit = this.timeline.graph.energy_unit;
    readout.show(
      event,
      ...readoutLines(
        `${energyText(this.timeline.energyAt(step), unit)} after ${plural(step, "move")}`,
        step > 0 && step <= this.timeline.judgement.steps.length
          ? `the last one: ${moveName(this.timeline, step - 1)}, ${energyText(this.timeline.judgement.steps[step - 1], unit)}`
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
    if (!this.marker) return;
    const { x, y, factor } = this.scales;
    this.marker.attr("transform", `translate(${x(step)},0)`);
    this.marker.select("circle").attr("cy", y(this.timeline.energyAt(step) / factor));
  }
}
