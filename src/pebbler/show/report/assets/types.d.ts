// What the page is given and what its scripts hand one another. The data are the dataclasses of page_data.py, field by field:
// tests/show/test_script_types.py holds the two together. `make scripts` checks the scripts against this file.


interface RowsData {
  start: number[];
  items: number[];
}

interface GraphData {
  name: string;
  unit: string;
  energy_unit: string;
  tensor_name: string[];
  tensor_size: number[];
  tensor_kind: string[];
  tensor_origin: string[];
  tensor_overwrites: (string | null)[];
  storage: number[];
  op_name: string[];
  op_origin: string[];
  op_sources: Record<string, string[]>;
  axes: string[];
  op_tile: number[][];
  op_cost: number[];
  op_once: boolean[];
  value_tensor: number[];
  value_version: number[];
  value_maker: number[];
  value_destroyer: number[];
  value_survives: boolean[];
  reads: RowsData;
  writes: RowsData;
  destroys: RowsData;
  readers: RowsData;
  step: StepNames | null;
}

interface StepNames {
  op_label: string[];
  tensor_label: string[];
  op_part: string[];
  op_module: string[];
  op_line: string[];
  op_kernel: string[];
  op_again: boolean[];
  op_sent: number[];
  tensor_role: string[];
}

interface BudgetData {
  device: string;
  budget: number | null;
  headroom: number;
  objective: string;
  unplanned: number;
  kernels: string;
  overlap: boolean;
  launch_peak: number;
  unlimited: UnlimitedStep | null;
  curve: BudgetPoint[];
  held: number | null;
}

interface UnlimitedStep {
  held: number[];
  cost: number[];
}

interface EarlierPhases {
  peak: number;
  unlimited: number;
}

interface BudgetPoint {
  peak: number;
  cost: number;
}

interface BudgetCurve {
  graph: number;
  points: BudgetPoint[];
}

/** A graph as the scripts use it: `effects` has put these in, and `useStepNames` what the file calls a captured step's ops. */
interface Graph extends GraphData {
  file_names?: { op: string[]; tensor: string[] };
  effects: Effects;
  value_size: number[];
  op_in_place: boolean[];
}

interface Effects {
  reads: number[][];
  writes: number[][];
  destroys: number[][];
  readers: number[][];
}

interface JudgementData {
  legal: boolean;
  energy: number;
  error: string | null;
  move: number | null;
  peak: number[];
  levels: number[];
  tensors: number[];
  ops: number[];
  kinds: number[];
  steps: number[];
}

/** Energy by level, tensor, op, kind of move and move; `spent` and `served` (units read) per move and level. */
interface Books {
  levels: number[];
  tensors: number[];
  ops: number[];
  kinds: number[];
  steps: number[];
  spent: number[];
  served: number[];
  peak: number[];
}

/** What the page's own rules say of moves. */
interface Judgement extends JudgementData {
  spent: number[];
  served: number[];
  played: number;
}

/** Hears of every legal move, and of the start as move -1: bits of levels per value, units per level, ops that have run. */
type Visit = (move: number, present: number[], used: number[], ran: Uint8Array) => void;

interface ClaimData {
  energy: number | null;
  bound: number | null;
  status: string | null;
  proof: string;
  unverified: string[];
  void: string[];
}

interface ProofNote {
  words: string;
  scope: string;
  page: string;
}

interface SavingStep {
  name: string;
  words: string;
  energy: number | null;
  levels: number[];
}

interface Knee {
  size: number;
  saved: number;
  tensor: string;
  op: string;
  write: boolean;
}

interface StepReuse {
  steady: boolean;
  line: number;
  accesses: number;
  cold: number;
  mean: number;
  distance: number[];
  weight: number[];
  reach: number[];
  knees: Knee[];
  opt_size: number[];
  opt_misses: number[];
}

/** A level of a machine; fields that are what they are without being given are left out of the data. */
interface MachineLevel {
  name: string;
  read: number;
  write: number;
  capacity?: number | null;
}

interface Machine {
  name: string;
  unit: string;
  level: MachineLevel[];
  management?: Management;
  operands?: "fastest" | "any";
  results?: "apart" | "over";
  allocator?: "own" | "reuse";
  line?: number;
  prices?: "pJ" | "ns";
  about?: string;
  device?: MeasuredDevice | null;
}

type Management = "explicit" | "lru" | "recency";

/** The page hands it on, as it is, to the plan files that it saves. */
interface MeasuredDevice {
  name: string;
  kind: string;
}

interface Moves {
  kind: number[];
  subject: number[];
  level: number[];
  to: number[];
}

interface Move {
  kind: number;
  subject: number;
  level: number;
  to: number;
}

interface PlanData extends Moves {
  name: string;
  graph: number;
  machine: Machine;
  capacity: number[];
  steady: boolean;
  baseline: boolean;
  bound: number | null;
  gap: number | null;
  status: string | null;
  proof: ProofNote | null;
  scope: string;
  claims: ClaimData;
  source: string | null;
  program_order: number | null;
  budget: BudgetData | null;
  unlimited: UnlimitedStep | null;
  earlier: EarlierPhases | null;
  savings: SavingStep[];
  start: number[];
  judgement: JudgementData;
  reuse: StepReuse | null;
}

interface Mark {
  name: string;
  energy: number;
  legal: boolean;
}

interface CapacityCurve {
  plan: string;
  level: number;
  rule: string;
  own: number;
  capacity: number[];
  energy: number[];
}

interface Landscape {
  rule: string;
  orders: string | null;
  complete: boolean;
  seen: number;
  misfits: number;
  low: number;
  high: number;
  counts: number[];
  marks: Mark[];
  curves: CapacityCurve[];
}

interface ReportData {
  title: string;
  version: string;
  graphs: Graph[];
  plans: PlanData[];
  landscape: Landscape | null;
  curve: BudgetCurve | null;
}

/** The levels and prices that moves are played with. */
interface Arena {
  names: string[];
  capacity: number[];
  read: number[];
  write: number[];
  management: Management;
  fastestOnly: boolean;
  over: boolean;
  allocator: "own" | "reuse";
  line: number;
  steady: boolean;
  start: number[];
}

/** Units per level of every value, null where it is nowhere; with what a cache holds in all, or the levels as bits. */
type Places = (number[] | null)[] & { used?: number[]; bits?: Int32Array };

/** Takes `units` of a value, or of lines that nothing needs, that lie so deep in the stack of a cache. */
type Sink = (value: number | null, above: number, units: number) => void;

/** What an op touches of a storage, in lines of a cache. */
interface Touching {
  value: number;
  tensor: number;
  root: number;
  write: boolean;
  step: number;
  fresh: boolean;
  address: number;
  last: boolean;
  lines: number;
  units: number;
}

/** Part of a touch; any two are equal or share no line. */
interface Piece {
  item: number;
  lines: number;
  units: number;
  touch: Touching;
}

/** A value, and how many units of it are held; value -1 are lines in a cache that nothing needs any more. */
type Held = [value: number, units: number];

/** Goes over the moves of a plan and tells, for every step asked for, what any level holds. */
type Sweep = (timeline: Timeline, steps: number[], visit: (step: number, heldIn: (level: number) => Held[]) => void) => void;

interface Life {
  value: number;
  level: number | null;
  from: number;
  to: number;
  low?: number;
}

/** A stay of a value in a level, drawn in some of its lanes. */
interface Band extends Life {
  units: number;
  low: number;
}

/** What a move reads: units of a value from a level. */
interface Read {
  value: number;
  level: number;
  move: number;
  units: number;
  cost: number;
}

/** A level with all that it ever holds, and what is read from it. */
interface Shelf {
  name: string;
  level: number;
  price: number;
  capacity: number | null;
  peak: number;
  energy: number;
  lanes: number;
  units: number;
  bands: Band[];
  reads: Read[];
}

/** A plan whose memory was measured, and its number on the page. */
interface Measured {
  plan: PlanData;
  i: number;
  found: StepReuse;
}

/** A place of a curve, with what the read-out says there. */
interface CurvePoint {
  x: number;
  y: number;
  words: string;
}

/** A line of a legend: `i` is the number of its colour and dashes. */
interface LegendLine {
  i: number;
  words: string;
}

/** What an op, or a group of source ops, costs by level in each of two plans. */
interface PairedRow {
  op: string;
  parts: number[][];
  change: number;
}

/** An op that two plans have: its places in both, and whether it left the common order. */
interface CommonOp {
  name: string;
  i: number;
  j: number;
  moved: boolean;
}

/** What ops of one name take of a step's time, and how much of that is computed again. */
interface TimeShare {
  name: string;
  time: number;
  runs: number;
  again: number;
}

/** Bytes that a block of the model keeps for the backward pass and sends to the host, and the cost of what it computes again. */
interface ModuleRow {
  name: string;
  kept: number;
  again: number;
  sent: number;
}

/** A plan of a step by its peak in bytes and its cost. */
interface FrontierPoint extends BudgetPoint {
  plan: PlanData;
}

/** The columns of a sweep's table, null where a run has nothing there. */
interface SweepRow {
  key: string;
  run: string;
  graph: string;
  machine: string;
  status: "optimal" | "bounded" | "heuristic" | "impossible" | "failed";
  pebbler: string;
  versions: string;
  finished: string;
  unit: string | null;
  level: string | null;
  capacity: number | null;
  share: number | null;
  capacities: string | null;
  objective: string | null;
  tile: string | null;
  seed: number | null;
  time_limit: number | null;
  energy: number | null;
  bound: number | null;
  bound_for: string | null;
  gap: number | null;
  energy_unit: string | null;
  program_order: number | null;
  moves: number | null;
  cut_off: boolean | null;
  peak: number | null;
  step_seconds: number | null;
  step_joules: number | null;
  proof: string | null;
  error: string | null;
  family: string | null;
  attempts: number | null;
  host: string | null;
  seconds: number | null;
  memory: number | null;
  best_energy: number | null;
  best_bound: number | null;
  best_key: string | null;
  plan: string | null;
  report: string | null;
  [parameter: `graph_${string}`]: number | null;
}

/** All runs of a sweep. */
interface SweepData {
  columns: string[];
  rows: SweepRow[];
}

/** Runs that differ in nothing but what is drawn along x. */
interface SweepLine {
  label: string;
  rows: SweepRow[];
}

type FigureName = "best_energy" | "energy" | "step_seconds" | "step_joules" | "gap" | "saving" | "seconds";

/** What the front of PyTorch steps is about, all of it known. */
interface StepFigures {
  capacity: number;
  step_seconds: number;
  step_joules: number;
}

interface StepRow extends StepFigures {
  graph: string;
  row: SweepRow;
}

/** A game as the page of `pebbler play` holds it. */
interface HandLevel {
  name: string;
  title: string;
  about: string;
  graph: Graph;
  machine: Machine;
  capacity: number[];
  steady: boolean;
  start: number[];
  optimum: number | null;
  plan: Moves | null;
}

interface PlayData {
  title: string;
  version: string;
  levels: HandLevel[];
}

/** Ops that have run, and values in the fast and in the slow level, as bits. */
interface Position {
  ran: number;
  red: number;
  blue: number;
}

/** A way to the end of a game; `proven` where none is cheaper. */
interface Finish {
  cost: number;
  moves: Move[];
  proven: boolean;
}

type Action = "compute" | "load" | "store" | "drop red" | "drop blue";

/** A value on the board; `band` is the line of the board that it stands in. */
interface BoardNode {
  value: number;
  column: number;
  x: number;
  y: number;
  band: number;
}

/** The board of a game as it is drawn. */
interface DrawnBoard {
  nodes: BoardNode[];
  shapes: { group: SVGGElement; words: SVGTitleElement }[];
  edges: { to: number; path: SVGPathElement }[];
}

/** `changed` hears of every change, `link` makes a link to a position, `next` leads to the next puzzle. */
interface HandOptions {
  changed?: (game: HandGame) => void;
  link?: (game: HandGame) => string;
  next?: (() => void) | null;
}

/** A level as it is drawn, with the cost of its reads per bin of moves. */
interface DrawnShelf extends Shelf {
  top: number;
  bottom: number;
  heat: Float64Array;
}

type DistanceTheme = Record<"ink" | "muted" | "line" | "soft", string>;

/** Moves of a plan along an axis in pixels: `step` is the one that is drawn. */
interface Column {
  x0: number;
  x1: number;
  step: number;
}

interface Lane {
  name: string;
  axes: string[];
  tiles: number[];
  ops: number[];
  count: number;
  single?: boolean;
  copy?: string;
}

/** A lane where it is drawn. */
interface PlacedLane extends Lane {
  height: number;
  y: number;
}

/** Where the lanes of a picture are, in pixels; `current` is the lane of the move shown, -1 for none. */
interface LaneFrame {
  width: number;
  height: number;
  left: number;
  top: number;
  right: number;
  bottom: number;
  lanes: PlacedLane[];
  current: number;
}

/** With moves from left to right, each `pitch` wide. */
interface OrderFrame extends LaneFrame {
  pitch: number;
  shift: number;
  x: (move: number) => number;
}

/** With tiles from left to right, `all` of them so wide together. */
interface TilesFrame extends LaneFrame {
  all: number;
  shift: number;
}

/** A value inside a node of the graph. */
interface Chip {
  value: number;
  name: string;
}

/** An op with what it writes, or a start value (`op` is null); x and y are its middle. */
interface GraphNode {
  key: string;
  op: number | null;
  title: string;
  chips: Chip[];
  x: number;
  y: number;
  width: number;
  height: number;
  band: number;
}

/** A hazard between two nodes, and the values that it is about. */
interface GraphEdge {
  kind: "raw" | "war" | "waw";
  from: string;
  to: string;
  values: number[];
  points: [number, number][];
}

interface Drawing {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

/** A drawing of a graph on the page. */
interface DrawnGraph {
  graph: Graph;
  box: Box;
  nodes: D3Selection<GraphNode, SVGGElement, unknown>;
  edges: D3Selection<GraphEdge, SVGPathElement, unknown>;
  chips: D3Selection<Chip & { x: number; y: number; width: number }, SVGGElement, GraphNode>;
}

interface LaneTheme {
  colours: string[];
  paper: string;
  soft: string;
  ink: string;
  muted: string;
  line: string;
  none: string;
  bad: string;
}

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** What is under the pointer: the move that a click goes to, -1 for none, and a read-out. */
interface LaneHit {
  move: number;
  words: () => (Node | string)[];
}

interface Lanes {
  lanes: Lane[];
  laneOf: Int32Array;
  placeOf: Int32Array;
}

type StageMode = "graph" | "tiles" | "order";

/** A move in words, for the list of moves. */
interface MoveWords {
  kind: string;
  text: string;
  cost: string;
}

/** What a picture of the player shows: the state after `step` moves, with the move at index `move` marked. */
interface Shown {
  timeline: Timeline;
  step: number;
  move: number;
  illegal: boolean;
}

/** What canvas and SVG have in common. */
type Pen = CanvasRenderingContext2D | SvgPen;

type Cell = string | number;

/** The figures behind a chart; the rows are made when somebody asks for them. */
interface Figures {
  columns: string[];
  rows: () => Cell[][];
}

/** What `el` puts into an element; null and undefined are left out. */
type Child = Node | string | null | undefined;
type Plain = string | number | boolean | null | undefined;
type Listeners = { [Name in keyof HTMLElementEventMap as `on${Name}`]?: (event: HTMLElementEventMap[Name]) => void };
type Styles = { [name in "background" | "height" | "left" | "top" | "width"]?: string | null };

/** Attributes of a new element, what it listens to and how it looks. Those that are null, undefined or false are left out. */
interface Attributes extends Listeners {
  [name: `aria-${string}` | `data-${string}`]: Plain;
  autocomplete?: Plain;
  checked?: Plain;
  class?: Plain;
  download?: Plain;
  for?: Plain;
  hidden?: Plain;
  href?: Plain;
  id?: Plain;
  method?: Plain;
  min?: Plain;
  placeholder?: Plain;
  role?: Plain;
  scope?: Plain;
  selected?: Plain;
  spellcheck?: Plain;
  style?: Styles;
  tabindex?: Plain;
  title?: Plain;
  type?: Plain;
  value?: Plain;
}

/** A part of a whole, under the name of what it is a tile of. */
interface Sum {
  name: string;
  amount: number;
  count: number;
}

interface Window {
  pebbler: Record<string, unknown>;
  DecompressionStream: new (format: "deflate") => GenericTransformStream; // older tsc does not know it
}
