// Why a value is where it is: who made it, who reads it next, and what becomes of it, in words.

/**
 * The op of a move, or what else the move does.
 * @param {Timeline} timeline
 * @param {number} i
 */
function moveName(timeline, i) {
  const { graph, moves } = timeline;
  return moves.kind[i] === COMPUTE
    ? shown(graph.op_name[moves.subject[i]], 40)
    : moves.kind[i] === COPY
      ? "a copy"
      : "a drop";
}

/**
 * Lines about a value that a level holds after `step` moves.
 * @param {Timeline} timeline
 * @param {number} value
 * @param {number} level
 * @param {number} step
 */
function storyOf(timeline, value, level, step) {
  const made = [...timeline.makes()[value]].reverse().find((at) => at <= step),
    again = made !== timeline.makes()[value][0],
    next = timeline.nextUse(value, step),
    lines = [
      made === undefined
        ? "there from the start"
        : `made ${again ? "again " : ""}in move ${grouped(made)} by ${moveName(timeline, made - 1)}`,
    ];
  lines.push(
    next === null ? "not read again" : `read next in move ${grouped(next)}, by ${moveName(timeline, next - 1)}`,
    timeline.arena.management === "explicit" ? stayEnds(timeline, value, level, step) : sinks(timeline, value, step),
  );
  return lines;
}

/**
 * On a cache nobody decides: what was touched last is nearest.
 * @param {Timeline} timeline
 * @param {number} value
 * @param {number} step
 */
function sinks(timeline, value, step) {
  const touched = [...timeline.makes()[value], ...timeline.uses()[value]].filter((at) => at <= step);
  return touched.length
    ? `last touched in move ${grouped(Math.max(...touched))}; a cache keeps what was touched last`
    : "not touched yet in this step";
}

/**
 * How the stay of a value in a level ends, and what that means for those who read it later.
 * @param {Timeline} timeline
 * @param {number} value
 * @param {number} level
 * @param {number} step
 */
function stayEnds(timeline, value, level, step) {
  const { arena, graph, moves } = timeline,
    lives = explicitLives(timeline),
    stay = lives.find((life) => life.value === value && life.level === level && life.from <= step && step < life.to);
  if (!stay || stay.to > timeline.length) return "kept to the end";
  const at = Math.floor(stay.to),
    name = (/** @type {number} */ k) => shown(arena.names[k], 24);
  if (moves.kind[at - 1] === COMPUTE) return `${moveName(timeline, at - 1)} writes over it in move ${grouped(at)}`;
  const later = timeline.nextUse(value, at);
  if (later === null && !graph.value_survives[value]) return `kept until move ${grouped(at)}, after its last use`;
  const elsewhere = lives
      .filter((life) => life.value === value && life.level !== level && life.from <= at && at < life.to)
      .map((life) => name(life.level)),
    back = lives.find((life) => life.value === value && life.level === level && life.from > at);
  if (elsewhere.length)
    return `leaves in move ${grouped(at)} and stays in ${elsewhere.join(" and ")}${back ? `; comes back in move ${grouped(back.from)}` : ""}`;
  const remade = timeline.makes()[value].find((move) => move > at);
  return remade === undefined
    ? `dropped in move ${grouped(at)}`
    : `dropped in move ${grouped(at)} and computed again in move ${grouped(remade)}, for ${energyText(timeline.judgement.steps[remade - 1] || 0, graph.energy_unit)}`;
}
