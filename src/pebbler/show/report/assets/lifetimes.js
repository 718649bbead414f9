// Lifetimes: what lies in each memory when. Rectangles are values, the line is the room taken in all.

/** When and where values are in memory: {value, level, from, to} in moves done; `room` is the sum at each step. */
function livesOf(timeline) {
  const { graph, arena } = timeline,
    explicit = arena.management === "explicit",
    lives = [];
  if (explicit) {
    const open = new Map();
    const before = new Int32Array(graph.value_tensor.length),
      { writes, destroys } = effects(graph);
    const versions = graph.tensor_name.map(() => []);
    graph.value_tensor.forEach((t, v) => versions[t].push(v));
    let end = 0;
    play(graph, arena, timeline.moves, (i, present) => {
      end = i + 1;
      const subject = timeline.moves.subject[i];
      const touched =
        i < 0
          ? before.keys()
          : timeline.moves.kind[i] === COMPUTE
            ? [...destroys[subject], ...writes[subject]]
            : versions[subject];
      for (const v of touched) {
        const changed = before[v] ^ present[v];
        before[v] = present[v];
        for (let level = 0; changed >>> level; level++) {
          if (!((changed >>> level) & 1)) continue;
          const key = v * 32 + level;
          if (open.has(key)) {
            lives.push({ value: v, level, from: open.get(key), to: end });
            open.delete(key);
          } else open.set(key, end);
        }
      }
    });
    open.forEach((from, key) => lives.push({ value: Math.floor(key / 32), level: key % 32, from, to: end + 0.5 }));
    return lives;
  }
  return cacheLives(timeline);
}

/** The same on a cache, which has no say in it: from each making of a value to its last use before it is made again. */
function cacheLives(timeline) {
  const { graph, arena } = timeline,
    { destroys } = effects(graph),
    end = timeline.length + 0.5,
    lives = [],
    gone = new Map(),
    address = new Map(); // of each value, and of what each move makes
  timeline.moves.kind.forEach((kind, i) => {
    if (kind === COMPUTE) destroys[timeline.moves.subject[i]].forEach((v) => gone.set(v, i)); // the new version takes over its room
  });
  const computes = timeline.moves.kind.map((kind, i) => [kind, i]).filter(([kind]) => kind === COMPUTE);
  const order = computes.map(([, i]) => timeline.moves.subject[i]);
  for (const touch of touchesOf(graph, arena, order)) {
    const low = touch.address * arena.line;
    if (!address.has(touch.value)) address.set(touch.value, low);
    if (touch.write) address.set(`${touch.value} ${computes[touch.step][1] + 1}`, low);
  }
  const anew = arena.management !== "recency";
  graph.value_tensor.forEach((_, v) => {
    if (!address.has(v)) return;
    const makes = graph.value_maker[v] < 0 ? [0] : timeline.makes()[v];
    const lasts = graph.value_maker[v] < 0 || graph.value_survives[v];
    const periods = lasts || !anew ? makes.slice(0, 1) : makes;
    periods.forEach((made, k) => {
      const from = Math.max(0, made - 1),
        last = lasts ? end : timeline.lastUse(v, anew ? made : 0),
        to = gone.has(v) && k === periods.length - 1 ? gone.get(v) : last;
      const low = address.get(made ? `${v} ${made}` : v);
      lives.push({ value: v, level: null, from, to: Math.max(to, from + 0.5), low });
    });
  });
  return lives;
}

/** Addresses for lives without any: first fit in order of time, larger ones first. */
function pack(lives, sizes) {
  const events = lives
    .map((life) => ({ life, size: sizes[life.value] }))
    .sort((a, b) => a.life.from - b.life.from || b.size - a.size);
  const free = new FreeList(0),
    ends = [];
  for (const { life, size } of events) {
    for (let i = ends.length - 1; i >= 0 && ends[i].life.to <= life.from; i--) {
      free.give(ends[i].life.low, ends[i].size);
      ends.pop();
    }
    life.low = free.take(size);
    let at = ends.length;
    while (at > 0 && ends[at - 1].life.to < life.to) at--;
    ends.splice(at, 0, { life, size });
  }
  return lives;
}

/** The room taken after each number of moves, as [step, units] where it changes, and its peak. */
function roomOf(lives, sizes) {
  const change = new Map();
  for (const life of lives) {
    change.set(life.from, (change.get(life.from) || 0) + sizes[life.value]);
    change.set(life.to, (change.get(life.to) || 0) - sizes[life.value]);
  }
  let sum = 0,
    peak = { at: 0, units: 0 };
  const line = [...change.entries()]
    .sort((a, b) => a[0] - b[0])
    .map(([at, by]) => {
      sum += by;
      if (sum > peak.units) peak = { at, units: sum };
      return [at, sum];
    });
  return { line, peak };
}

/** The level that most of each value is in after every move of a cache plan; null where that is too much work. */
function mainLevels(timeline) {
  const { graph, length } = timeline;
  if (length * (graph.value_tensor.length + graph.reads.items.length) > 4e6) return null;
  let before = new Int8Array(graph.value_tensor.length).fill(-1);
  return Array.from({ length: length + 1 }, (_, step) => {
    // A value that is gone by now was last where the step before left it.
    before = Int8Array.from(timeline.places(step), (place, v) => (place ? place.indexOf(d3.max(place)) : before[v]));
    return before;
  });
}

class Lifetimes {
  constructor(root) {
    this.panels = el("div", {});
    this.words = el("figcaption", {});
    root.append(el("figure", {}, this.panels, this.words), (this.table = el("div", {})));
    this.tip = el("div", { class: "tooltip", hidden: true });
    document.body.append(this.tip);
    new ResizeObserver(() => {
      if (this.timeline && this.panels.clientWidth !== this.width) this.draw();
    }).observe(this.panels);
    document.addEventListener("themechange", () => this.draw());
  }

  show(timeline) {
    this.timeline = timeline;
    const { arena, graph } = timeline,
      sizes = graph.value_size,
      all = livesOf(timeline);
    const explicit = arena.management === "explicit";
    this.sunk = explicit ? null : mainLevels(timeline);
    this.groups = (
      explicit
        ? arena.names.map((name, level) => ({
            name,
            level,
            lives: pack(
              all.filter((life) => life.level === level),
              sizes,
            ),
          }))
        : [{ name: "memory by address", level: null, lives: all }]
    ).filter((group) => group.lives.some((life) => sizes[life.value] > 0));
    this.words.textContent = explicit
      ? "Each rectangle is a value while a level holds it; heights are packed first " +
        "fit, the line is the true sum. Point at a rectangle for its size and next " +
        "use."
      : `Each rectangle is a value from its making to its last use, at the addresses ` +
        `that ${arena.allocator === "own" ? "are each tensor's own" : "the first-fit allocator gives it"}` +
        `${this.sunk ? ", coloured by the level that most of it has sunk to" : ""}. ` +
        `Dashed lines, for scale: the capacity of a level with all faster ones.`;
    this.table.replaceChildren(
      asTable(["value", "level", `size (${graph.unit})`, "from move", "to move"], () =>
        this.groups.flatMap((group) =>
          group.lives.map((life) => [
            shown(valueName(graph, life.value)),
            explicit ? group.name : "–",
            grouped(sizes[life.value]),
            Math.floor(life.from),
            Math.ceil(life.to - 0.5),
          ]),
        ),
      ),
    );
    this.draw();
  }

  draw() {
    if (!this.timeline) return;
    this.width = this.panels.clientWidth;
    if (this.width < 80) return;
    this.panels.replaceChildren(...this.groups.map((group) => this.panel(group)));
  }

  panel(group) {
    const { timeline, width } = this,
      { graph, arena } = timeline,
      sizes = graph.value_size,
      height = group.level === null ? 380 : 200;
    const { line, peak } = roomOf(group.lives, sizes),
      ruled = group.level === null ? arena.names.length > 1 : arena.capacity[group.level] < 2 ** 61;
    const margin = { left: 58, right: ruled ? 76 : 12, top: width < 560 ? 40 : 30, bottom: 38 };
    const capacity = group.level !== null && arena.capacity[group.level] < 2 ** 61 ? arena.capacity[group.level] : null;
    const top = d3.max(group.lives, (life) => life.low + sizes[life.value]);
    const near = capacity !== null && capacity < 3 * Math.max(top, peak.units);
    const x = d3.scaleLinear([0, timeline.length + 0.5], [margin.left, width - margin.right]);
    const y = d3.scaleLinear(
      [0, Math.max(top, peak.units, near ? capacity : 0) * 1.04 || 1],
      [height - margin.bottom, margin.top],
    );
    const canvas = el("canvas", {}),
      ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    Object.assign(canvas.style, { height: `${height}px`, width: `${width}px` });
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    const colours = arena.names.map((_, i) => cssValue(`--level-${Math.min(i, 5)}`)),
      paper = cssValue("--paper"),
      ink = cssValue("--on-level");
    for (const life of group.lives) this.paint(pen, life, group, x, y, colours, paper, ink);
    pen.strokeStyle = cssValue("--ink");
    pen.lineWidth = 1.5;
    pen.beginPath();
    line.forEach(([at, units], i) => {
      if (i) pen.lineTo(x(at), y(line[i - 1][1]));
      else pen.moveTo(x(at), y(units));
      pen.lineTo(x(at), y(units));
    });
    pen.stroke();
    const svg = d3
      .create("svg")
      .attr("class", "axes")
      .attr("width", width)
      .attr("height", height)
      .attr("aria-hidden", "true");
    svg
      .append("g")
      .attr("transform", `translate(0,${height - margin.bottom})`)
      .call(
        d3
          .axisBottom(x)
          .ticks(Math.min(12, width / 80, timeline.length))
          .tickFormat((n) => (Number.isInteger(n) ? d3.format(",")(n) : "")),
      );
    svg
      .append("g")
      .attr("transform", `translate(${margin.left},0)`)
      .call(
        d3
          .axisLeft(y)
          .ticks(height / 50)
          .tickFormat(brief),
      );
    const text = (words, at, up, anchor) =>
      svg
        .append("text")
        .attr("x", at)
        .attr("y", up)
        .attr("text-anchor", anchor)
        .style("fill", "var(--ink)")
        .text(words);
    svg
      .append("text")
      .attr("x", width - margin.right)
      .attr("y", height - 4)
      .attr("text-anchor", "end")
      .text("moves done");
    const title = group.level === null ? `${group.name} (${graph.unit})` : `${shown(group.name, 30)} (${graph.unit})`;
    text(title, 4, 13, "start").style("font-weight", 600).style("font-size", "12.5px");
    const rule = (units, words, dash) => {
      svg
        .append("line")
        .attr("x1", margin.left)
        .attr("x2", width - margin.right)
        .attr("y1", y(units))
        .attr("y2", y(units))
        .style("stroke", "var(--bad)")
        .attr("stroke-dasharray", dash);
      words.forEach((word, i) =>
        text(word, width - margin.right + 5, y(units) - 2 + 12 * i, "start").style("fill", "var(--bad)"),
      );
    };
    if (near) rule(capacity, ["capacity", grouped(capacity)], "6 4");
    if (group.level === null) {
      let reach = 0;
      arena.names.slice(0, -1).forEach((name, i) => {
        reach += arena.capacity[i];
        if (reach < y.domain()[1] && reach > y.domain()[1] / 60)
          rule(reach, [`to ${shown(name, 9)}`, brief(reach)], "6 4");
      });
    }
    svg.append("circle").attr("cx", x(peak.at)).attr("cy", y(peak.units)).attr("r", 4).style("fill", "var(--ink)");
    const move = Math.floor(peak.at),
      when = group.level === null ? `in move ${move + 1}` : `after move ${move}`;
    const peakWords = `peak ${grouped(peak.units)}${capacity !== null ? ` of ${brief(capacity)}` : ""} ${when}`;
    text(peakWords, width - 12, width < 560 ? 26 : 13, "end");
    svg
      .append("path")
      .attr("d", `M${x(peak.at)},${y(peak.units) - 5}L${x(peak.at)},${margin.top - 8}`)
      .style("stroke", "var(--ink)")
      .attr("stroke-dasharray", "1 3");
    canvas.addEventListener("mousemove", (event) => this.point(event, group, x, y, canvas));
    canvas.addEventListener("mouseleave", () => {
      this.tip.hidden = true;
    });
    return el(
      "div",
      {
        class: "lifetimes",
        role: "img",
        "aria-label": `Lifetimes in ${title}: ${peakWords}, ${plural(group.lives.length, "lifetime")}`,
      },
      canvas,
      svg.node(),
    );
  }

  paint(pen, life, group, x, y, colours, paper, ink) {
    const { timeline } = this,
      { graph } = timeline,
      size = graph.value_size[life.value];
    if (!size) return;
    const left = x(life.from),
      wide = Math.max(1, x(life.to) - left),
      low = y(life.low),
      high = y(life.low + size),
      tall = low - high;
    const tint = 1 - (graph.value_tensor[life.value] % 3) * (isDark() ? 0.1 : 0.16);
    pen.globalAlpha = tint;
    if (group.level !== null || !this.sunk) {
      pen.fillStyle = group.level === null ? cssValue("--level-5") : colours[group.level];
      pen.fillRect(left, high, wide, tall);
    } else {
      for (let step = Math.floor(life.from); step < life.to; step++) {
        const at = this.sunk[Math.min(step + 1, timeline.length)][life.value];
        let end = step + 1;
        while (end < life.to && this.sunk[Math.min(end + 1, timeline.length)][life.value] === at) end++;
        pen.fillStyle = colours[Math.max(at, 0)];
        pen.fillRect(x(Math.max(life.from, step)), high, x(Math.min(end, life.to)) - x(step) + 0.5, tall);
        step = end - 1;
      }
    }
    pen.globalAlpha = 1;
    if (tall > 2 && wide > 3) {
      pen.strokeStyle = paper;
      pen.lineWidth = 1;
      pen.strokeRect(left + 0.5, high + 0.5, wide - 1, tall - 1);
    }
    const name = shown(graph.tensor_name[graph.value_tensor[life.value]], 24);
    if (tall >= 12 && pen.measureText(name).width + 8 < wide) {
      pen.fillStyle = ink;
      pen.fillText(name, left + 4, high + Math.min(tall / 2 + 4, 14));
    }
  }

  point(event, group, x, y, canvas) {
    const box = canvas.getBoundingClientRect(),
      step = x.invert(event.clientX - box.left),
      units = y.invert(event.clientY - box.top);
    const { timeline, tip } = this,
      { graph } = timeline,
      sizes = graph.value_size;
    const { kind, subject } = timeline.moves;
    const slack = Math.abs(y.invert(0) - y.invert(3));
    const life = group.lives.find(
      (one) =>
        one.from <= step &&
        step < one.to &&
        sizes[one.value] &&
        one.low <= units &&
        units < one.low + Math.max(sizes[one.value], slack),
    );
    tip.hidden = !life;
    if (!life) return;
    const next = timeline.nextUse(life.value, Math.floor(step) + 1),
      at =
        next === null
          ? "not used again"
          : group.level === null && next > life.to
            ? "not used again before it is made again"
            : `next used by move ${next}, ${kind[next - 1] === COMPUTE ? shown(graph.op_name[subject[next - 1]], 40) : "a copy"}`;
    tip.replaceChildren(
      el("strong", {}, shown(valueName(graph, life.value), 80)),
      el("br"),
      `${grouped(sizes[life.value])} ${graph.unit}`,
      el("br"),
      `from move ${Math.floor(life.from)} to ${Math.ceil(life.to - 0.5)}; ${at}`,
    );
    const width = tip.offsetWidth,
      over = event.pageX + width + 24 > document.documentElement.clientWidth + window.scrollX;
    Object.assign(tip.style, {
      left: `${over ? Math.max(4, event.pageX - width - 12) : event.pageX + 14}px`,
      top: `${event.pageY + 14}px`,
    });
  }
}
