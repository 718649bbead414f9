// A game played by hand: the moves so far, the referee's word on the next one, and the cheapest way to the end from here.

/** @type {Record<Action, string>} */
const LETTERS = { compute: "c", load: "l", store: "s", "drop red": "d", "drop blue": "x" };
const MOST_LINKED = 20_000; // moves in a link


/**
 * One kind of move on one value, as a player sees it.
 * @param {Graph} graph
 * @param {Action} action
 * @param {number} value
 * @returns {Move}
 */
function moveOf(graph, action, value) {
  const tensor = graph.value_tensor[value];
  if (action === "compute") return { kind: COMPUTE, subject: graph.value_maker[value], level: 0, to: NONE };
  if (action === "load") return { kind: COPY, subject: tensor, level: 1, to: 0 };
  if (action === "store") return { kind: COPY, subject: tensor, level: 0, to: 1 };
  return { kind: DROP, subject: tensor, level: action === "drop red" ? 0 : 1, to: NONE };
}

/**
 * What a move is called: the other way round.
 * @param {Move} move
 * @returns {Action}
 */
function actionOf(move) {
  if (move.kind === COMPUTE) return "compute";
  if (move.kind === COPY) return move.level === 1 ? "load" : "store";
  return move.level === 0 ? "drop red" : "drop blue";
}

/**
 * @param {Move[]} moves
 * @returns {Moves}
 */
const asLists = (moves) => ({
  kind: moves.map((move) => move.kind),
  subject: moves.map((move) => move.subject),
  level: moves.map((move) => move.level),
  to: moves.map((move) => move.to),
});
/**
 * @param {Moves} lists
 * @returns {Move[]}
 */
const asMoves = (lists) =>
  Array.from(lists.kind, (kind, i) => ({ kind, subject: lists.subject[i], level: lists.level[i], to: lists.to[i] }));
/**
 * @param {Move} a
 * @param {Move} b
 */
const sameMove = (a, b) =>
  a.kind === b.kind && a.subject === b.subject && a.level === b.level && (a.kind !== COPY || a.to === b.to);

class HandGame {
  /** @param {HandLevel} level */
  constructor(level) {
    this.level = level;
    this.graph = level.graph;
    effects(this.graph);
    this.arena = arenaOf(level);
    this.solvable = isRedBlue(this.graph, this.arena);
    /** @type {Map<string, {cost: number, moves: Move[]}>} */
    this.known = new Map(); // the cheapest finish of positions that were solved, by their key
    /** @type {Move[]} */
    this.moves = [];
    /** @type {Move[]} */
    this.undone = [];
    /** @type {Set<string>} */
    this.unsolved = new Set(); // keys of positions that are too large for the search
    this.route = level.plan ? new PlanRoute(this.graph, this.arena, level.plan) : null;
    this.state = this.replay();
  }

  /** Play all moves again: the judgement, and what is where after the last legal move. */
  replay() {
    const { graph, arena } = this,
      state = { present: zeros(graph.value_tensor.length), used: zeros(arena.names.length), ran: zeros(graph.op_name.length) }; // prettier-ignore
    const judgement = play(graph, arena, asLists(this.moves), (_, present, used, ran) => {
      state.present = present.slice();
      state.used = used.slice();
      state.ran = Array.from(ran);
    });
    return { ...state, judgement };
  }

  get judgement() {
    return this.state.judgement;
  }

  /** Per value the levels that hold it now, as bits. */
  get present() {
    return this.state.present;
  }

  /** Units per level. */
  get used() {
    return this.state.used;
  }

  /** Per op, 1 where it has run. */
  get ran() {
    return this.state.ran;
  }

  get spent() {
    return this.judgement.energy;
  }

  get finished() {
    return this.judgement.legal;
  }

  /** The position as a text. */
  get key() {
    return `${this.ran.join("")}:${this.present.join("")}`;
  }

  /**
   * What the referee says of one more move: null, or why it is illegal.
   * @param {Move} move
   */
  wordOn(move) {
    const judgement = play(this.graph, this.arena, asLists([...this.moves, move]));
    return judgement.move === this.moves.length + 1 ? (judgement.error ?? "").replace(/^move \d+: /, "") : null;
  }

  /**
   * The referee's word in the words of the game: pebbles instead of levels, nodes instead of versions.
   * @param {string} word
   */
  inPebbles(word) {
    const [fast, slow] = this.arena.names,
      plain = word.replace(/ \(version 0\)/g, ""),
      missing = plain.match(/^(.+) reads (.+), which (is not in the fastest level|is in no level|.* has not made yet)/);
    if (missing) {
      const late = missing[3].endsWith("made yet") ? ", which has not been computed yet" : "";
      return `${missing[1]} needs a red pebble on ${missing[2]}${late}`;
    }
    if (plain.startsWith(`${fast} would hold`)) return `all ${this.arena.capacity[0]} red pebbles are in use; remove one first`;
    for (const [level, colour] of [
      [fast, "red"],
      [slow, "blue"],
    ])
      if (plain.endsWith(` is not in ${level}`)) return `${plain.slice(0, -` is not in ${level}`.length)} has no ${colour} pebble`;
    return plain;
  }

  /**
   * What one more move would cost.
   * @param {Move} move
   */
  priceOf(move) {
    const judgement = play(this.graph, this.arena, asLists([...this.moves, move]));
    return judgement.steps[this.moves.length];
  }

  /**
   * Make a move; returns null, or the referee's word on why not.
   * @param {Move} move
   */
  make(move) {
    const word = this.wordOn(move);
    if (word !== null) return word;
    const next = this.undone.pop();
    if (!next || !sameMove(next, move)) this.undone = [];
    this.advance(move);
    return null;
  }

  /** @param {Move} move */
  advance(move) {
    const finish = this.finish(),
      before = this.spent;
    this.moves.push(move);
    this.state = this.replay();
    if (finish && finish.moves.length > 1 && sameMove(finish.moves[0], move)) {
      this.remember({ cost: finish.cost - (this.spent - before), moves: finish.moves.slice(1) });
    }
  }

  undo() {
    const move = this.moves.pop();
    if (!move) return false;
    this.undone.push(move);
    this.state = this.replay();
    return true;
  }

  redo() {
    const move = this.undone.pop();
    if (!move) return false;
    this.advance(move);
    return true;
  }

  restart() {
    this.undone = [...this.moves, ...this.undone.slice().reverse()].reverse();
    this.moves = [];
    this.state = this.replay();
  }

  // The way to the end ----------------------------------------------------------------------------------------------

  /**
   * The cheapest finish from here, where it is known by now; null otherwise. Where the page cannot search, a way that follows the
   * given plan; it is `proven` to be the cheapest where it leads through the plan itself, or to the optimum of the whole game.
   * @returns {Finish | null}
   */
  finish() {
    if (this.finished) return { cost: 0, moves: [], proven: true };
    const found = this.known.get(this.key);
    if (found) return { ...found, proven: true };
    const { route } = this,
      stop = route && route.nearest(this.ran.join(""), this.present);
    if (!stop || (!stop.same && this.solvable && !this.unsolved.has(this.key))) return null;
    const move = this.towards(route, stop),
      { optimum } = this.level,
      reached = optimum !== null && this.spent + stop.cost <= optimum * (1 + 1e-12);
    return move && { cost: stop.cost, moves: [move], proven: stop.same || reached };
  }

  /**
   * The next move of the plan from one of its stops; a drop first, where more is held here than there and in the way.
   * @param {PlanRoute} route
   * @param {{next: number, present: number[]}} stop
   * @returns {Move | null}
   */
  towards(route, stop) {
    const move = route.moves[stop.next];
    if (!move || this.wordOn(move) === null) return move || null;
    for (const [v, bits] of this.present.entries()) {
      if (!(bits & 1) || stop.present[v] & 1 || !this.graph.value_size[v]) continue;
      const drop = moveOf(this.graph, "drop red", v);
      if (this.wordOn(drop) === null) return drop;
    }
    return null;
  }

  /** @param {{cost: number, moves: Move[]}} finish */
  remember(finish) {
    this.known.set(this.key, finish);
  }

  /** A search from here, to be run piece by piece; null where the game is too large for it. */
  search() {
    if (!this.solvable) return null;
    const red = bitsOf(this.present.flatMap((bits, v) => (bits & 1 ? [v] : []))),
      blue = bitsOf(this.present.flatMap((bits, v) => (bits & 2 ? [v] : [])));
    const ran = bitsOf(this.ran.flatMap((done, o) => (done ? [o] : [])));
    return new OptimumSearch(this.graph, this.arena, { ran, red, blue });
  }

  // Links -----------------------------------------------------------------------------------------------------------

  /** A short number that two different games hardly share, so that a link is not played on another game. */
  get check() {
    const { graph, arena } = this;
    const text = JSON.stringify([
      graph.op_name, graph.tensor_name, graph.tensor_size, graph.op_cost, graph.reads, graph.writes,
      arena.capacity[0], arena.read, arena.write, arena.start,
    ]); // prettier-ignore
    let hash = 0x811c9dc5;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    return (hash >>> 0).toString(36);
  }

  /** The position for a link: every move as a letter and a number. */
  get code() {
    return this.moves.map((move) => `${LETTERS[actionOf(move)]}${move.subject.toString(36)}`).join(".");
  }

  /**
   * Take up the moves of a link; returns what is wrong with them, or null. The moves before that are kept.
   * @param {string} code
   */
  take(code) {
    this.moves = [];
    this.undone = [];
    /** @type {string | null} */
    let wrong = null;
    const words = code === "" ? [] : code.split(".");
    const taken = [];
    for (const [i, word] of words.entries()) {
      const move = i < MOST_LINKED ? this.readMove(word) : null;
      if (move === null) {
        wrong = i < MOST_LINKED ? `move ${i + 1}: ${JSON.stringify(word.slice(0, 20))} is no move of this game` : "it is too long";
        break;
      }
      taken.push(move);
    }
    const judgement = play(this.graph, this.arena, asLists(taken));
    if (judgement.move !== null) wrong = (judgement.error ?? "").replace(/^(move \d+: )(.*)$/, (_, at, word) => at + this.inPebbles(word));
    this.moves = judgement.move === null ? taken : taken.slice(0, judgement.move - 1);
    this.state = this.replay();
    return wrong;
  }

  /** @param {string} word */
  readMove(word) {
    const action = ACTIONS.find(({ name }) => LETTERS[name] === word[0])?.name;
    if (!action || !/^[0-9a-z]{1,4}$/.test(word.slice(1))) return null;
    const subject = parseInt(word.slice(1), 36);
    if (action === "compute") {
      return subject < this.graph.op_name.length ? { kind: COMPUTE, subject, level: 0, to: NONE } : null;
    }
    const value = this.graph.value_tensor.indexOf(subject);
    return value < 0 ? null : moveOf(this.graph, action, value);
  }

  /** The moves as a plan file, for pebbler check. */
  planFile() {
    return planFile(this.graph, this.level, {
      moves: asLists(this.moves),
      arena: this.arena,
      judgement: this.judgement,
    });
  }
}
