// The parts of d3, Plot and dagre that the pages use. The libraries are vendored as published, without types.

/** A value of an attribute or a style, or a function that makes it from the datum of an element. */
type D3Value<D, V> = V | ((datum: D, index: number) => V);
type D3Attribute = string | number | boolean | null | readonly number[] | D3Transform;

/** Elements with their data `D`; `P` is the datum of the element that they were selected in. */
interface D3Selection<D, E extends Element, P> {
  append<K extends keyof SVGElementTagNameMap>(tag: K): D3Selection<D, SVGElementTagNameMap[K], P>;
  attr(name: string, value: D3Value<D, D3Attribute>): this;
  style(name: string, value: D3Value<D, string | number | null>): this;
  classed(name: string, value: D3Value<D, boolean>): this;
  text(value: D3Value<D, string>): this;
  on(type: string, act: ((event: MouseEvent, datum: D) => void) | null): this;
  call<A extends unknown[]>(act: (selection: this, ...rest: A) => void, ...rest: A): this;
  select(selector: string): D3Selection<D, Element, P>;
  selectAll(selector: string): D3Selection<unknown, Element, D>;
  filter(selector: string | ((datum: D) => boolean)): this;
  data(): D[];
  data<N>(rows: N[] | ((parent: P) => N[])): D3Selection<N, E, P>;
  join<K extends keyof SVGElementTagNameMap>(tag: K): D3Selection<D, SVGElementTagNameMap[K], P>;
  each(act: (this: E, datum: D) => void): this;
  remove(): this;
  /** The first element. The pages ask only where there is one. */
  node(): E;
}

/** A number on an axis to a place in pixels, and back. */
interface D3Scale {
  (value: number): number;
  invert(place: number): number;
  domain(): [number, number];
  range(): [number, number];
  ticks(count?: number): number[];
  nice(): this;
}

type D3Curve = { readonly name: string };

interface D3Line {
  (points: [number, number][]): string | null;
  curve(curve: D3Curve): this;
}

interface D3Axis {
  (selection: unknown): void;
  ticks(count: number): this;
  tickFormat(format: (value: number) => string): this;
}

interface D3Transform {
  x: number;
  y: number;
  k: number;
  translate(x: number, y: number): D3Transform;
  scale(k: number): D3Transform;
}

interface D3Zoom {
  (selection: unknown): void;
  scaleExtent(extent: [number, number]): this;
  filter(accept: (event: WheelEvent | MouseEvent | TouchEvent) => boolean): this;
  on(type: "zoom", act: (event: { transform: D3Transform }) => void): this;
  scaleBy(selection: unknown, factor: number): void;
  translateTo(selection: unknown, x: number, y: number): void;
  transform(selection: unknown, transform: D3Transform): void;
}

declare const d3: {
  max(numbers: Iterable<number>): number | undefined;
  max<T>(items: Iterable<T>, numberOf: (item: T, index: number) => number | null | undefined): number | undefined;
  min(numbers: Iterable<number>): number | undefined;
  min<T>(items: Iterable<T>, numberOf: (item: T, index: number) => number | null | undefined): number | undefined;
  mean<T>(items: Iterable<T>, numberOf: (item: T, index: number) => number | undefined): number | undefined;
  sum(numbers: Iterable<number>): number;
  sum<T>(items: Iterable<T>, numberOf: (item: T, index: number) => number): number;
  extent<T>(items: Iterable<T>, numberOf: (item: T) => number): [number, number] | [undefined, undefined];
  sort<T>(items: Iterable<T>, ...keys: ((item: T) => number | boolean)[]): T[];
  group<T, K>(items: Iterable<T>, keyOf: (item: T) => K): Map<K, T[]>;
  range(from: number, to: number, step: number): number[];
  ticks(from: number, to: number, count: number): number[];
  bisectRight(numbers: number[], value: number): number;
  format(specifier: string): (value: number) => string;
  scaleLinear(domain: [number, number], range: [number, number]): D3Scale;
  scaleLog(domain: [number, number], range: [number, number]): D3Scale;
  create(tag: "svg"): D3Selection<undefined, SVGSVGElement, undefined>;
  select(node: Element): D3Selection<undefined, Element, undefined>;
  line(): D3Line;
  line(x: (point: [number, number]) => number, y: (point: [number, number]) => number): D3Line;
  curveBasis: D3Curve;
  curveStepAfter: D3Curve;
  axisBottom(scale: D3Scale): D3Axis;
  axisLeft(scale: D3Scale): D3Axis;
  zoom(): D3Zoom;
  zoomIdentity: D3Transform;
  zoomTransform(node: Element): D3Transform;
  interpolateRgb(a: string, b: string): (part: number) => string;
  interpolateInferno(part: number): string;
  interpolateYlOrRd(part: number): string;
  piecewise(interpolate: (a: string, b: string) => (part: number) => string, stops: string[]): (part: number) => string;
  color(text: string): { formatHex(): string } | null;
};

/** A mark of a chart, ready to be drawn. */
interface PlotMark {
  readonly ariaLabel: string;
}

/** A field of the data, or a function of a row. */
type PlotChannel<D, V> = (keyof D & string) | ((row: D) => V);
type PlotStyle<D, V> = V | ((row: D) => V);

interface PlotMarkOptions<D> {
  x?: PlotChannel<D, number>;
  x1?: PlotChannel<D, number>;
  x2?: PlotChannel<D, number>;
  y?: PlotChannel<D, number>;
  y1?: PlotChannel<D, number>;
  y2?: PlotChannel<D, number>;
  z?: PlotChannel<D, number | string>;
  r?: PlotStyle<D, number>;
  text?: PlotChannel<D, string>;
  title?: PlotChannel<D, string>;
  href?: PlotChannel<D, string | null>;
  fill?: PlotStyle<D, string>;
  stroke?: PlotStyle<D, string>;
  strokeDasharray?: PlotStyle<D, string | null>;
  strokeWidth?: number;
  strokeOpacity?: number;
  fillOpacity?: number;
  fontSize?: number;
  fontWeight?: number;
  textAnchor?: string;
  frameAnchor?: string;
  lineAnchor?: "top" | "middle" | "bottom";
  dx?: number;
  dy?: number;
  insetLeft?: number;
  insetRight?: number;
  curve?: string;
  marker?: string;
  symbol?: string;
  tip?: boolean;
}

interface PlotAxis {
  type?: string;
  domain?: [number, number];
  label?: string;
  labelAnchor?: string;
  grid?: boolean;
  zero?: boolean;
  nice?: boolean;
  base?: number;
  ticks?: number[];
  tickFormat?: (value: number) => string;
}

interface PlotOptions {
  width?: number;
  height?: number;
  marginLeft?: number;
  marginRight?: number;
  marginTop?: number;
  marginBottom?: number;
  grid?: boolean;
  style?: Record<string, string>;
  x: PlotAxis;
  y: PlotAxis;
  marks: PlotMark[];
}

declare const Plot: {
  plot(options: PlotOptions): SVGSVGElement | HTMLElement;
  line<D>(rows: D[], options: PlotMarkOptions<D>): PlotMark;
  areaY<D>(rows: D[], options: PlotMarkOptions<D>): PlotMark;
  rectY<D>(rows: D[], options: PlotMarkOptions<D>): PlotMark;
  dot<D>(rows: D[], options: PlotMarkOptions<D>): PlotMark;
  text<D>(rows: D[], options: PlotMarkOptions<D>): PlotMark;
  tip<D>(rows: D[], options: PlotMarkOptions<D>): PlotMark;
  ruleX<D>(rows: D[], options?: PlotMarkOptions<D>): PlotMark;
  ruleY<D>(rows: D[], options?: PlotMarkOptions<D>): PlotMark;
  pointerX<D>(options: PlotMarkOptions<D>): PlotMarkOptions<D>;
};

interface DagreGraph {
  setGraph(options: { rankdir: string; nodesep: number; ranksep: number; edgesep: number }): void;
  setNode(key: string, size: { width: number; height: number }): void;
  setEdge(from: string, to: string, options: { weight: number }, name: string): void;
  /** After the layout. */
  node(key: string): { x: number; y: number };
  edge(from: string, to: string, name: string): { points: { x: number; y: number }[] };
}

declare const dagre: {
  graphlib: { Graph: new (options: { multigraph: boolean }) => DagreGraph };
  layout(graph: DagreGraph): void;
};
