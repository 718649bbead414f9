// The large picture of the player: the graph where it is small, otherwise the order of the moves or the grid of tiles.

const MOST_READABLE = 80, // ops in a graph whose labels can be read
  MOST_GRAPH = 3000; // ops in a drawing that a browser still moves

class Stage {
  /** `handlers`: op(index) and move(index) go to what was clicked, mode() hears that another picture is shown. */
  constructor(handlers) {
    this.handlers = handlers;
    this.views = {
      graph: new GraphView(handlers.op),
      tiles: new TilesView(handlers.move),
      order: new OrderView(handlers.move),
    };
    const button = (text, label, act) =>
      el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
    this.buttons = Object.fromEntries(
      [
        ["graph", "Graph", "Ops, values and hazards"],
        ["tiles", "Tiles", "Families of ops as rows, tiles as columns"],
        ["order", "Order", "Moves from left to right"],
      ].map(([mode, text, title]) => [
        mode,
        el("button", { type: "button", title, "data-mode": mode, onclick: () => this.use(mode) }, text),
      ]),
    );
    this.element = el(
      "div",
      { class: "stage" },
      el(
        "div",
        { class: "tools" },
        el("span", { class: "modes", role: "group", "aria-label": "Picture" }, ...Object.values(this.buttons)),
        button("−", "Zoom out", () => this.view.zoomBy(1 / 1.4)),
        button("+", "Zoom in", () => this.view.zoomBy(1.4)),
        button("Fit", "Show all of it", () => this.view.fit()),
        svgButton("the picture", () => this.picture()),
      ),
      ...Object.values(this.views).map((view) => view.holder),
    );
  }

  get view() {
    return this.views[this.mode];
  }

  /**
   * Show another plan's graph, in the picture that says most about it.
   * @param {Graph} graph
   */
  load(graph) {
    const tiled = isTiled(graph),
      ops = graph.op_name.length;
    this.offered = {
      graph: ops <= MOST_READABLE || (!tiled && ops <= MOST_GRAPH),
      tiles: tiled,
      order: true,
    };
    for (const view of Object.values(this.views)) view.load(graph);
    for (const [mode, button] of Object.entries(this.buttons)) button.hidden = !this.offered[mode];
    this.state = null;
    if (!this.chosen || !this.offered[this.chosen]) this.mode = tiled ? "tiles" : ops <= MOST_READABLE ? "graph" : "order";
    else this.mode = this.chosen;
    this.reveal();
  }

  /** Show the state of a timeline: {timeline, step, move (index of the move shown), illegal}. */
  show(state) {
    this.state = state;
    this.view.show(state);
  }

  use(mode) {
    this.mode = this.chosen = mode;
    this.reveal();
    if (this.state) this.view.show(this.state);
    this.handlers.mode();
  }

  reveal() {
    for (const [mode, view] of Object.entries(this.views)) view.holder.hidden = mode !== this.mode;
    for (const [mode, button] of Object.entries(this.buttons))
      button.setAttribute("aria-pressed", String(mode === this.mode));
  }

  picture() {
    return this.view.svg instanceof Function ? this.view.svg() : this.view.svgNode();
  }
}
