// The list of moves: drawn only where it is in sight, reordered by dragging or with the keyboard.

const ROW = 28;

class Schedule {
  /** @param {{select: (index: number) => void, move: (from: number, to: number) => void, play: () => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    this.count = 0;
    this.index = -1;
    this.done = 0;
    this.illegal = -1;
    this.spacer = el("div", {});
    this.dropLine = el("div", { class: "droplines" });
    this.list = el(
      "div",
      {
        class: "moves",
        role: "listbox",
        tabindex: "0",
        "aria-label": "Moves in order. Arrow keys step; Alt with arrow keys moves the selected one.",
        onkeydown: (event) => this.key(event),
        onscroll: () => this.draw(),
      },
      this.spacer,
      this.dropLine,
    );
    /** @type {Map<number, HTMLElement>} */
    this.rows = new Map();
    /** @type {number | null} */
    this.held = null; // the move that is dragged
    /** @type {(i: number) => MoveWords} */
    this.describe = () => ({ kind: "", text: "", cost: "" });
    new ResizeObserver(() => this.draw()).observe(this.list);
  }

  /**
   * @param {number} count
   * @param {(i: number) => MoveWords} describe  the move in place i
   */
  load(count, describe) {
    this.count = count;
    this.describe = describe;
    Object.assign(this.spacer.style, { height: `${count * ROW}px` });
    this.rows.forEach((node) => node.remove());
    this.rows.clear();
    this.draw();
  }

  /**
   * @param {number} index
   * @param {number} done
   * @param {number} illegal
   */
  select(index, done, illegal) {
    this.index = index;
    this.done = done;
    this.illegal = illegal;
    const top = index * ROW,
      view = this.list;
    if (index >= 0 && (top < view.scrollTop || top + ROW > view.scrollTop + view.clientHeight)) {
      view.scrollTop = top - view.clientHeight / 2 + ROW;
    }
    this.draw();
    if (index >= 0) view.setAttribute("aria-activedescendant", `move-${index}`);
    else view.removeAttribute("aria-activedescendant");
  }

  draw() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 6);
    const last = Math.min(this.count - 1, Math.ceil((this.list.scrollTop + (this.list.clientHeight || 400)) / ROW) + 6);
    this.rows.forEach((node, i) => {
      if ((i < first || i > last) && i !== this.held) {
        node.remove();
        this.rows.delete(i);
      }
    });
    for (let i = first; i <= last; i++) {
      const node = entryOf(this.rows, i, () => this.make(i));
      if (node.parentNode !== this.list) this.list.append(node);
      node.classList.toggle("done", i < this.done);
      node.classList.toggle("selected", i === this.index);
      node.classList.toggle("illegal", i === this.illegal);
      node.setAttribute("aria-selected", i === this.index ? "true" : "false");
    }
  }

  /** @param {number} i */
  make(i) {
    const { kind, text, cost } = this.describe(i);
    const grip = el("span", { class: "grip", "aria-hidden": "true", title: "Drag to reorder" }, "⠿");
    const node = el(
      "div",
      {
        class: `move ${kind}`,
        role: "option",
        id: `move-${i}`,
        "aria-setsize": this.count,
        "aria-posinset": i + 1,
        style: { top: `${i * ROW}px` },
        onclick: () => {
          this.list.focus({ preventScroll: true });
          this.handlers.select(i);
        },
      },
      grip,
      el("span", { class: "number" }, String(i + 1)),
      el("span", { class: "what", title: text }, text),
      el("span", { class: "cost" }, cost),
    );
    grip.addEventListener("pointerdown", (event) => this.drag(event, i, grip));
    return node;
  }

  /**
   * @param {PointerEvent} event
   * @param {number} from
   * @param {HTMLElement} grip
   */
  drag(event, from, grip) {
    event.preventDefault();
    grip.setPointerCapture(event.pointerId);
    this.held = from; // its row stays while it is held, even out of sight
    let to = from,
      lastY = event.clientY;
    const aim = () => {
      const box = this.list.getBoundingClientRect();
      to = Math.max(0, Math.min(this.count, Math.round((lastY - box.top + this.list.scrollTop) / ROW)));
      Object.assign(this.dropLine.style, { display: "block", top: `${to * ROW - 1}px` });
    };
    /** @param {PointerEvent} move */
    const follow = (move) => {
      lastY = move.clientY;
      aim();
    };
    const timer = setInterval(() => {
      const box = this.list.getBoundingClientRect();
      const pull = lastY < box.top + 24 ? -1 : lastY > box.bottom - 24 ? 1 : 0;
      if (pull) {
        this.list.scrollTop += pull * ROW;
        aim();
      }
    }, 60);
    /** @param {boolean} done */
    const end = (done) => {
      clearInterval(timer);
      this.held = null;
      grip.removeEventListener("pointermove", follow);
      this.dropLine.style.display = "none";
      if (done && to !== from && to !== from + 1) this.handlers.move(from, to > from ? to - 1 : to);
    };
    grip.addEventListener("pointermove", follow);
    grip.addEventListener("pointerup", () => end(true), { once: true });
    grip.addEventListener("pointercancel", () => end(false), { once: true });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    /** @type {Record<string, number>} */
    const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 },
      step = steps[event.key];
    if (step && event.altKey) {
      const to = Math.max(0, Math.min(this.count - 1, this.index + step));
      if (this.index >= 0 && to !== this.index) this.handlers.move(this.index, to);
    } else if (step) this.handlers.select(Math.max(-1, Math.min(this.count - 1, this.index + step)));
    else if (event.key === "Home") this.handlers.select(-1);
    else if (event.key === "End") this.handlers.select(this.count - 1);
    else if (event.key === " ") this.handlers.play();
    else return;
    event.preventDefault();
  }
}
