// The large picture of the player: the graph where it is small, otherwise the order of the moves or the grid of tiles.

const MOST_READABLE = 80, // ops in a graph whose labels can be read
  MOST_GRAPH = 3000; // ops in a drawing that a browser still moves

/** @type {[mode: StageMode, text: string, title: string][]} */
const PICTURES = [
  ["graph", "Graph", "Ops, values and hazards"],
  ["tiles", "Tiles", "Families of ops as rows, tiles as columns"],
  ["order", "Order", "Moves from left to right"],
];

class Stage {
  /**
   * `op` and `move` go to what was clicked, `mode` hears that another picture is shown.
   * @param {{op: (op: number) => void, move: (move: number) => void, mode: () => void}} handlers
   */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {StageMode} */
    this.mode = "order";
    /** @type {StageMode | null} */
    this.chosen = null; // by the reader
    /** @type {Shown | null} */
    this.state = null;
    this.views = {
      graph: new GraphView(handlers.op),
      tiles: new TilesView(handlers.move),
      order: new OrderView(handlers.move),
    };
    this.buttons = PICTURES.map(([mode, text, title]) => ({
      mode,
      button: el("button", { type: "button", title, "data-mode": mode, onclick: () => this.use(mode) }, text),
    }));
    this.element = el(
      "div",
      { class: "stage" },
      el(
        "div",
        { class: "tools" },
        el(
          "span",
          { class: "modes", role: "group", "aria-label": "Picture" },
          ...this.buttons.map(({ button }) => button),
        ),
        labelled("−", "Zoom out", () => this.view.zoomBy(1 / 1.4)),
        labelled("+", "Zoom in", () => this.view.zoomBy(1.4)),
        labelled("Fit", "Show all of it", () => this.view.fit()),
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
    const offered = {
      graph: ops <= MOST_READABLE || (!tiled && ops <= MOST_GRAPH),
      tiles: tiled,
      order: true,
    };
    for (const view of Object.values(this.views)) view.load();
    for (const { mode, button } of this.buttons) button.hidden = !offered[mode];
    this.state = null;
    const small = ops <= MOST_READABLE && graph.step === null; // the graph of a captured step is too wide to be read
    if (!this.chosen || !offered[this.chosen]) this.mode = tiled ? "tiles" : small ? "graph" : "order";
    else this.mode = this.chosen;
    this.reveal();
  }

  /** @param {Shown} state */
  show(state) {
    this.state = state;
    this.view.show(state);
  }

  /** @param {StageMode} mode */
  use(mode) {
    this.mode = this.chosen = mode;
    this.reveal();
    if (this.state) this.view.show(this.state);
    this.handlers.mode();
  }

  reveal() {
    for (const [mode, view] of Object.entries(this.views)) view.holder.hidden = mode !== this.mode;
    for (const { mode, button } of this.buttons)
      button.setAttribute("aria-pressed", String(mode === this.mode));
  }

  picture() {
    return this.view instanceof GraphView ? this.view.svgNode() : this.view.svg();
  }
}
