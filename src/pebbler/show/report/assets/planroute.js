// The positions that a given plan goes through, so that whoever comes to one of them, or has more pebbles, can follow it.

class PlanRoute {
  /**
   * @param {Graph} graph
   * @param {Arena} arena
   * @param {Moves} plan
   */
  constructor(graph, arena, plan) {
    this.moves = asMoves(plan);
    /** @type {Map<string, {present: number[], next: number, spent: number}[]>} */
    this.stops = new Map(); // by the ops that have run
    const judgement = play(graph, arena, plan, (i, present, _, ran) => {
      const key = Array.from(ran).join("");
      entryOf(this.stops, key, () => []).push({ present: Array.from(present), next: i + 1, spent: 0 });
    });
    // A move's price is known when it has been played, so what each stop has cost is filled in afterwards.
    const running = [0];
    for (const price of judgement.steps) running.push(running[running.length - 1] + price);
    this.total = running[running.length - 1];
    for (const stops of this.stops.values()) for (const stop of stops) stop.spent = running[stop.next];
  }

  /**
   * The stop nearest to the end among those where the same ops have run and nothing is held that is not held here. Whatever the
   * plan does from there can be done from here at the same price: what is held besides is dropped where it is in the way.
   * @param {string} ran
   * @param {number[]} present
   */
  nearest(ran, present) {
    let best = null;
    for (const stop of this.stops.get(ran) || []) {
      if (stop.present.some((bits, v) => bits & ~present[v])) continue;
      const same = stop.present.every((bits, v) => bits === present[v]);
      if (best === null || this.total - stop.spent < best.cost || same)
        best = { next: stop.next, cost: this.total - stop.spent, present: stop.present, same };
    }
    return best;
  }
}
