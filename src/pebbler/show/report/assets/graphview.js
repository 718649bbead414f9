// The graph as a drawing: boxes are ops, chips are values filled with the colour of the level they are in.

const READABLE = 10 / 11; // the scale below which the letters on chips would be smaller than 10 pixels, and are left out

class GraphView {
  /** @param {(op: number) => void} onOp */
  constructor(onOp) {
    /** @type {DrawnGraph | null} */
    this.drawn = null;
    /** @type {WeakMap<Element, string>} */
    this.seen = new WeakMap(); // what each chip shows
    this.holder = el("div", { class: "lanes" });
    this.onOp = onOp;
    this.svg = d3
      .select(this.holder)
      .append("svg")
      .attr("role", "img")
      .attr("aria-label", "Graph of ops, values and hazards");
    const defs = this.svg.append("defs");
    for (const [kind, colour] of [
      ["raw", "var(--strong-line)"],
      ["war", "#d55e00"],
      ["waw", "#0072b2"],
    ]) {
      defs
        .append("marker")
        .attr("id", `arrow-${kind}`)
        .attr("viewBox", "0 0 8 8")
        .attr("refX", 7)
        .attr("refY", 4)
        .attr("markerWidth", 7)
        .attr("markerHeight", 7)
        .attr("markerUnits", "userSpaceOnUse")
        .attr("orient", "auto")
        .append("path")
        .attr("d", "M0,0.5L8,4L0,7.5z")
        .style("fill", colour);
    }
    this.world = this.svg.append("g");
    this.zoom = d3
      .zoom()
      .scaleExtent([0.02, 4])
      // A wheel scrolls the page and so does one finger; with a modifier, or two fingers, they zoom and drag.
      .filter((event) => {
        if (event.type === "wheel") return event.ctrlKey || event.metaKey || event.altKey;
        return "touches" in event ? event.touches.length > 1 : !event.button;
      })
      .on("zoom", (event) => {
        this.world.attr("transform", event.transform);
        this.svg.classed("far", event.transform.k < READABLE);
      });
    this.svg.call(this.zoom).on("dblclick.zoom", null);
    new ResizeObserver(() => {
      if (this.drawn) this.home();
    }).observe(this.holder);
  }

  /** Forget the plan shown: another one comes. */
  load() {
    this.drawn = null;
  }

  /** @param {Shown} state */
  show(state) {
    const drawn = this.drawn || this.draw(state.timeline.graph);
    this.colour(drawn, state);
    this.follow(drawn, state);
  }

  /** @param {number} factor */
  zoomBy(factor) {
    this.svg.call(this.zoom.scaleBy, factor);
  }

  /**
   * Keep what the move shown is about in sight where the drawing is larger than the frame: the layout stays, the view moves.
   * @param {DrawnGraph} drawn
   * @param {Shown} state
   */
  follow(drawn, { move }) {
    const box = this.holder.getBoundingClientRect(),
      { x, y, k } = d3.zoomTransform(this.svg.node());
    if (move < 0 || box.width < 20 || (drawn.box.width * k <= box.width && drawn.box.height * k <= box.height)) return;
    const node = drawn.nodes.filter(".current, .illegal").data()[0];
    if (!node) return;
    /** @type {(place: number, room: number) => boolean} */
    const inside = (place, room) => place > room * 0.2 && place < room * 0.8;
    const at = [node.x * k + x, node.y * k + y];
    if (inside(at[0], box.width) && inside(at[1], box.height)) return;
    this.svg.call(this.zoom.translateTo, node.x, node.y);
  }

  /**
   * @param {Graph} graph
   * @returns {DrawnGraph}
   */
  draw(graph) {
    const frame = this.holder.getBoundingClientRect(),
      drawing = nodesAndEdges(graph),
      box = layOut(drawing, Math.max(0.6, frame.width / Math.max(frame.height, 1)));
    this.world.selectAll("*").remove();
    const line = d3.line().curve(d3.curveBasis);
    /** @param {string} key */
    const nodeName = (key) =>
      shown(key[0] === "o" ? graph.op_name[Number(key.slice(1))] : valueName(graph, Number(key.slice(1))));
    const words = {
      raw: "reads what the other writes (RAW)",
      war: "must wait for the other to read (WAR)",
      waw: "must wait for the other to write (WAW)",
    };
    const edges = this.world
      .append("g")
      .selectAll("path")
      .data(drawing.edges)
      .join("path")
      .attr("class", (e) => `edge ${e.kind}`)
      .attr("d", (e) => line(e.points))
      .attr("marker-end", (e) => `url(#arrow-${e.kind})`);
    edges
      .append("title")
      .text(
        (e) =>
          `${nodeName(e.from)} → ${nodeName(e.to)}: the second ${words[e.kind]}, ` +
          `${e.values.map((v) => shown(valueName(graph, v))).join(", ")}`,
      );
    const nodes = this.world
      .append("g")
      .selectAll("g")
      .data(drawing.nodes)
      .join("g")
      .attr("class", "node")
      .attr("transform", (n) => `translate(${n.x - n.width / 2},${n.y - n.height / 2})`)
      .on("mouseenter", (_, n) => this.light(n.key))
      .on("mouseleave", () => this.light(null))
      .on("click", (_, n) => {
        if (n.op !== null) this.onOp(n.op);
      });
    nodes
      .append("rect")
      .attr("class", "box")
      .attr("rx", (n) => (n.op === null ? 12 : 4))
      .attr("width", (n) => n.width)
      .attr("height", (n) => n.height);
    nodes
      .filter((n) => n.title !== "")
      .append("text")
      .attr("x", (n) => n.width / 2)
      .attr("y", 15)
      .attr("text-anchor", "middle")
      .text((n) => n.title);
    nodes.append("title").text((n) => (n.op === null ? "" : shown(graph.op_name[n.op])));
    const chips = nodes
      .selectAll("g.chip")
      .data((n) => {
        let x = (n.width - n.chips.reduce((sum, chip) => sum + chipWidth(chip.name) + CHIP_GAP, -CHIP_GAP)) / 2;
        return n.chips.map((chip) => {
          const at = { ...chip, x, y: n.op === null ? 4 : 22, width: chipWidth(chip.name) };
          x += at.width + CHIP_GAP;
          return at;
        });
      })
      .join("g")
      .attr("class", "chip")
      .attr("transform", (c) => `translate(${c.x},${c.y})`);
    chips.append("g").attr("class", "parts");
    chips
      .append("rect")
      .attr("class", "outline")
      .attr("width", (c) => c.width)
      .attr("height", 18)
      .attr("rx", 3);
    chips
      .append("text")
      .attr("x", (c) => c.width / 2)
      .attr("y", 13)
      .attr("text-anchor", "middle")
      .text((c) => c.name);
    chips.append("title");
    this.drawn = { graph, box, nodes, edges, chips };
    this.seen = new WeakMap();
    this.home();
    return this.drawn;
  }

  /** @param {string | null} key */
  light(key) {
    if (!this.drawn) return;
    this.world.classed("dim", key !== null);
    this.drawn.edges.classed("lit", (e) => key !== null && (e.from === key || e.to === key));
    this.drawn.nodes.classed("lit", (n) => n.key === key);
  }

  /**
   * @param {DrawnGraph} drawn
   * @param {Shown} state
   */
  colour({ graph, nodes, chips }, { timeline, step, move, illegal }) {
    const { seen } = this,
      places = timeline.places(step),
      names = timeline.arena.names;
    const current = move >= 0 && timeline.moves.kind[move] === COMPUTE ? timeline.moves.subject[move] : null;
    const tensor = move >= 0 && timeline.moves.kind[move] !== COMPUTE ? timeline.moves.subject[move] : null;
    const ran = new Set();
    for (let i = 0; i < step; i++) if (timeline.moves.kind[i] === COMPUTE) ran.add(timeline.moves.subject[i]);
    /** @param {GraphNode} n */
    const touched = (n) =>
      (n.op !== null && n.op === current) ||
      (tensor !== null &&
        n.chips.some((c) => graph.value_tensor[c.value] === tensor && (places[c.value] || n.op === null)));
    nodes
      .classed("waiting", (n) => n.op !== null && !ran.has(n.op))
      .classed("current", (n) => touched(n) && !illegal)
      .classed("illegal", (n) => touched(n) && illegal);
    chips.each(function (chip) {
      /** @type {{level: number, share: number, x: number}[]} */
      const parts = [];
      const place = places[chip.value],
        bits = places.bits ? places.bits[chip.value] : 0,
        state = place ? `${place.join()} ${bits}` : "";
      if (seen.get(this) === state) return; // a long graph has thousands, and a move changes few
      seen.set(this, state);
      const sum = place ? d3.sum(place) : 0;
      if (place) {
        const held = place
          .map((units, level) => ({ level, share: sum ? units / sum : 0 }))
          .filter((part) => part.share > 0);
        if (!held.length)
          held.push({
            level: timeline.arena.management === "explicit" ? lowestBit(bits) : 0,
            share: 1,
          });
        let x = 0;
        for (const part of held) {
          parts.push({ ...part, x });
          x += part.share * chip.width;
        }
      }
      const node = d3.select(this).classed("absent", !place);
      node
        .select(".parts")
        .selectAll("rect")
        .data(parts)
        .join("rect")
        .attr("class", "part")
        .attr("height", 18)
        .attr("x", (p) => p.x)
        .attr("width", (p) => p.share * chip.width)
        .style("fill", (p) => levelColour(p.level));
      const where = parts.map((p) => names[p.level]).join(" and ");
      const size = graph.value_size[chip.value];
      node
        .select("title")
        .text(
          `${shown(valueName(graph, chip.value))}, ${grouped(size)} ${graph.unit}: ${place ? `in ${where}` : "not in memory"}`,
        );
    });
  }

  svgNode() {
    return this.svg.node();
  }

  /** All of it if its labels can be read then, otherwise its beginning. */
  home() {
    this.fit(READABLE);
  }

  /**
   * Show all of it; with a scale that is the least, where it is larger than the frame, from above with its first op in the middle.
   * @param {number} [least]
   */
  fit(least = 0) {
    const box = this.holder.getBoundingClientRect(),
      d = this.drawn && this.drawn.box;
    if (!d || box.width < 20) return;
    const scale = Math.max(least, Math.min(1.25, (box.width - 24) / d.width, (box.height - 16) / d.height));
    /** @type {GraphNode | undefined} */
    const first = this.drawn?.nodes.data().find((node) => node.op === 0);
    const room = box.width - d.width * scale, // less than 0 where it is larger
      middle = first ? box.width / 2 - (first.x - d.x) * scale : 12,
      x = (room > 24 ? room / 2 : Math.max(room - 12, Math.min(12, middle))) - d.x * scale,
      y = Math.max(8, (box.height - d.height * scale) / 2) - d.y * scale;
    this.svg.call(this.zoom.transform, d3.zoomIdentity.translate(x, y).scale(scale));
  }
}

/** @param {number} bits */
const lowestBit = (bits) => (bits ? 31 - Math.clz32(bits & -bits) : 0);
