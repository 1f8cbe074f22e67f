"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const view = {
  over: "step",
  logarithmic: false,
  hidden: new Set()
};
const by = (id) => document.getElementById(id);

/// A new element. The text is never read as HTML.
function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const colour = (run) => "var(--run-" + run % 8 + ")";
function dot(run) {
  const made = element("span", "dot");
  made.style.setProperty("--colour", colour(run));
  return made;
}

/// A number in few characters: 1.2M, 0.0312, 5e-5.
function brief(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e4) return new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1}).format(value);
  if (size > 0 && size < 1e-3) return value.toExponential(1).replace(".0e", "e");
  return String(Number(value.toPrecision(4)));
}
/// The texts of an axis' ticks, all in one form.
function tickTexts(values, unit) {
  const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  if (unit === "%") return values.map((value) => Number((100 * value).toPrecision(3)) + " %");
  if (most > 0 && most < 1e-2)
    return values.map((value) => value === 0 ? "0" : String(value.toExponential(2)).replace(/\.?0+e/, "e"));
  return values.map(brief);
}
const percent = (value) => value === null || value === undefined ? "–" : (100 * value).toFixed(1) + " %";
const withUnit = (unit) => unit === "%" ? percent : brief;

function duration(hours) {
  const seconds = Math.round(hours * 3600), two = (n) => String(n).padStart(2, "0");
  const minutes = two(Math.floor(seconds / 60) % 60) + ":" + two(seconds % 60);
  return seconds < 3600 ? minutes : Math.floor(seconds / 3600) + ":" + minutes;
}

function bytes(count) {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  for (; count >= 1000 && unit < units.length - 1; ++unit) count /= 1000;
  return (unit === 0 ? count : count.toPrecision(3)) + " " + units[unit];
}

/// Round numbers from low to high, about `count` of them: 1, 2 or 5 times a power of ten apart.
function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const distance = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw);
  const list = [];
  for (let i = Math.ceil(low / distance - 1e-9); i * distance <= high + distance * 1e-9; ++i)
    list.push(Number((i * distance).toPrecision(12)));
  return list;
}

/// Powers of ten within the range, or round numbers where there are fewer than two.
function logarithmicTicks(low, high) {
  const list = [];
  for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; ++power) list.push(10 ** power);
  if (list.length >= 2) return list.length > 6 ? list.filter((_, i) => i % 2 === 0) : list;
  return ticks(10 ** low, 10 ** high, 4).filter((value) => value > 0);
}

const kTitles = {
  loss: ["Loss", ""],
  learning_rate: ["Learning rate", ""],
  grad_norm: ["Gradient norm", ""],
  loss_scale: ["Loss scale", ""],
  skipped_steps: ["Skipped steps", "", true, true],
  sequences_per_second: ["Sequences per second", "", true],
  tokens_per_second: ["Tokens per second", "", true],
  mfu: ["MFU", "%", true],
  waiting: ["Waiting for data", "%", true],
  fill: ["Fill of micro-batches", "%", true],
  exposed_communication_ms: ["Exposed communication, ms", "", true],
  tokens_least: ["Tokens, least of a rank", "", true],
  tokens_most: ["Tokens, most of a rank", "", true],
  corrupted_rows: ["Damaged rows replaced", "", true, true],
  data_wait_seconds: ["Waiting for data, seconds", "", true],
};
const kFirst =
    ["loss", "learning_rate", "grad_norm", "loss_scale", "skipped_steps", "sequences_per_second", "mfu", "waiting"];
const kOver = {
  step: "steps",
  tokens: "tokens",
  hours: "hours"
};

/// One figure of all runs over steps, tokens or hours.
class Chart {
  constructor(place, kind, name, spec) {
    Object.assign(this, {kind, name, ...spec});
    const copy = by("chart").content.cloneNode(true);
    this.figure = copy.querySelector("figure");
    this.svg = copy.querySelector("svg");
    this.tip = copy.querySelector(".tip");
    this.figure.dataset.kind = kind;
    this.figure.dataset.name = name;
    copy.querySelector("figcaption").append(element("span", "", this.title), element("span", "over"));
    place.append(copy);
    this.svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.svg.addEventListener("pointerdown", (event) => this.point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  /// The points of the visible runs, without those that have no value here.
  series() {
    const usable = (x, y) =>
        Number.isFinite(x) && x !== null && Number.isFinite(y) && y !== null && !(view.logarithmic && y <= 0);
    return runs.flatMap((run, number) => {
      const columns = run[this.kind], column = columns.values[this.name];
      if (!column || view.hidden.has(number)) return [];
      const points = columns[view.over].map((x, i) => [x, column[i]]).filter(([x, y]) => usable(x, y));
      return points.length ? [{number, run, points}] : [];
    });
  }

  scale(series) {
    const xs = series.flatMap((each) => each.points.map((point) => point[0]));
    const ys = series.flatMap((each) => each.points.map((point) => point[1]));
    if (Number.isFinite(this.level)) ys.push(this.level);
    const most = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity),
          least = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
    const turned = view.logarithmic ? Math.log10 : (y) => y;
    let low = turned(least(ys)), high = turned(most(ys));
    if (this.zero && !view.logarithmic) low = Math.min(low, 0);
    if (high - low < 1e-12 * Math.max(1, Math.abs(high)))
      high = low + (Math.abs(low) || 1) * (this.zero && low >= 0 ? 1 : .1);
    const margin = (high - low) * .05;
    if (!(this.zero && low === 0)) low -= margin;
    high += margin;
    const right = most(xs), box = {left: 50, right: this.width - 12, top: 10, bottom: this.height - 24};
    const x = {low: 0, high: right > 0 ? right : 1};
    return {
      box,
      x,
      y: {low, high},
      turned,
      toX: (value) => box.left + (value - x.low) / (x.high - x.low) * (box.right - box.left),
      toY: (value) => box.bottom - (turned(value) - low) / (high - low) * (box.bottom - box.top)
    };
  }

  draw() {
    this.leave();
    this.width = Math.max(260, Math.round(this.svg.getBoundingClientRect().width));
    this.height = Math.round(Math.min(250, Math.max(190, this.width * .5)));
    this.figure.querySelector(".over").textContent = "over " + kOver[view.over];
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.setAttribute("aria-label", this.title + " over " + kOver[view.over] + "; arrow keys read the values");
    this.drawn = this.series();
    if (!this.drawn.length) {
      this.svg.append(shape(
          "text", {x: this.width / 2, y: this.height / 2, "text-anchor": "middle"},
          view.hidden.size ? "no values of these runs" : "no values"));
      return;
    }
    this.s = this.scale(this.drawn);
    const {box, x, y} = this.s;
    Object.assign(this.svg.dataset, {
      left: box.left,
      right: box.right,
      top: box.top,
      bottom: box.bottom,
      xLow: x.low,
      xHigh: x.high,
      yLow: y.low,
      yHigh: y.high,
      logarithmic: view.logarithmic,
      over: view.over
    });
    this.axes();
    for (const each of this.drawn) this.curve(each);
    this.guide = shape("g", {visibility: "hidden"});
    this.svg.append(this.guide);
  }

  axes() {
    const {box, x, y, toX, toY} = this.s, text = withUnit(this.unit);
    const levels = (view.logarithmic ? logarithmicTicks(y.low, y.high) : ticks(y.low, y.high, 5))
                       .filter(
                           (value) => (!this.whole || Number.isInteger(value)) && toY(value) > box.top - 1 &&
                               toY(value) < box.bottom + 1);
    const texts = tickTexts(levels, this.unit);
    levels.forEach((value, i) => {
      this.svg.append(shape("line", {class: "grid", x1: box.left, x2: box.right, y1: toY(value), y2: toY(value)}));
      this.svg.append(shape("text", {x: box.left - 7, y: toY(value) + 3.5, "text-anchor": "end"}, texts[i]));
    });
    this.svg.append(shape("line", {class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom}));
    for (const value of ticks(x.low, x.high, Math.max(2, Math.floor((box.right - box.left) / 90)))) {
      this.svg.append(
          shape("line", {class: "axis", x1: toX(value), x2: toX(value), y1: box.bottom, y2: box.bottom + 4}));
      this.svg.append(shape(
          "text", {x: toX(value), y: box.bottom + 16, "text-anchor": "middle"},
          view.over === "hours" ? duration(value) : brief(value)));
    }
    if (Number.isFinite(this.level) && !(view.logarithmic && this.level <= 0)) {
      const line =
          shape("line", {class: "reference", x1: box.left, x2: box.right, y1: toY(this.level), y2: toY(this.level)});
      line.append(shape("title", {}, this.levelName + ": " + text(this.level)));
      this.svg.append(
          line,
          shape(
              "text", {x: box.right, y: toY(this.level) - 4, "text-anchor": "end"},
              this.levelName + " " + text(this.level)));
    }
  }

  curve({number, run, points}) {
    const {box, toX, toY} = this.s;
    for (const restart of run.restarts) {
      const at = toX(restart[view.over]),
            line = shape("line", {class: "restart", x1: at, x2: at, y1: box.top, y2: box.bottom});
      line.append(shape("title", {}, `${run.name}: another process continued before step ${restart.step}`));
      this.svg.append(line);
    }
    const places = points.map(([x, y]) => toX(x).toFixed(2) + "," + toY(y).toFixed(2));
    const dashes = number >= 8 ? {"stroke-dasharray": "6 3"} : {};
    this.svg.append(shape("polyline", {
      class: "curve",
      points: places.join(" "),
      stroke: colour(number),
      "data-run": number,
      "data-points": points.length,
      ...dashes
    }));
    const seen = this.kind === "evaluations" || points.length === 1 ? points : [];
    if (seen.length <= 40)
      for (const [x, y] of seen)
        this.svg.append(shape("circle", {cx: toX(x), cy: toY(y), r: 2.4, fill: colour(number)}));
  }

  /// Shows the values of the runs nearest to a horizontal place in pixels of the page.
  point(offset) {
    if (!this.drawn || !this.drawn.length) return;
    const {box, x} = this.s, place = offset * this.width / this.svg.getBoundingClientRect().width;
    this.show(
        x.low +
        (Math.min(box.right, Math.max(box.left, place)) - box.left) / (box.right - box.left) * (x.high - x.low));
  }

  show(value) {
    const {box, toX, toY} = this.s, text = withUnit(this.unit);
    const nearest = this.drawn.map(({number, run, points}) => {
      let low = 0, high = points.length - 1;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (points[middle][0] < value)
          low = middle;
        else
          high = middle;
      }
      return {
        number,
        run,
        point: Math.abs(points[low][0] - value) <= Math.abs(points[high][0] - value) ? points[low] : points[high]
      };
    });
    const centre =
        nearest.reduce((a, b) => Math.abs(b.point[0] - value) < Math.abs(a.point[0] - value) ? b : a).point[0];
    this.at = centre;
    this.guide.replaceChildren(
        shape("line", {class: "guide", x1: toX(centre), x2: toX(centre), y1: box.top, y2: box.bottom}));
    const heading = view.over === "hours" ? duration(centre) + " of training" :
        view.over === "step"              ? "step " + centre :
                                            brief(centre) + " tokens";
    this.tip.replaceChildren(element("div", "quiet", heading));
    for (const {number, run, point} of nearest) {
      this.guide.append(shape("circle", {cx: toX(point[0]), cy: toY(point[1]), r: 3.2, fill: colour(number)}));
      const row = element("div", "row");
      row.append(
          dot(number), element("span", "", run.name),
          element("b", "", this.unit === "%" ? text(point[1]) : String(Number(point[1].toPrecision(6)))));
      this.tip.append(row);
    }
    this.guide.setAttribute("visibility", "visible");
    this.tip.hidden = false;
    const frame = this.svg.getBoundingClientRect();
    const at = frame.left - this.figure.getBoundingClientRect().left + toX(centre) * frame.width / this.width;
    const left = toX(centre) > this.width / 2 ? at - this.tip.offsetWidth - 12 : at + 12;
    this.tip.style.left = Math.max(4, Math.min(left, this.figure.clientWidth - this.tip.offsetWidth - 4)) + "px";
    this.tip.style.top = this.figure.querySelector("figcaption").offsetHeight + 18 + "px";
  }

  leave() {
    if (this.guide) this.guide.setAttribute("visibility", "hidden");
    this.tip.hidden = true;
    this.at = undefined;
  }

  key(event) {
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!move || !this.drawn || !this.drawn.length) return;
    event.preventDefault();
    const places =
        [...new Set(this.drawn.flatMap((each) => each.points.map((point) => point[0])))].sort((a, b) => a - b);
    const now = this.at === undefined ? (move > 0 ? -1 : places.length) : places.indexOf(this.at);
    this.show(places[Math.min(places.length - 1, Math.max(0, now + move))]);
  }
}
