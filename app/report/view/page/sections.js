const charts = [];
const last = (column) => column ? column.findLast((value) => value !== null) : undefined;
const counted = (count, noun) => count + " " + noun + (count === 1 ? "" : "s");
const firstLine = (text) => text.split("\n")[0];

function cell(text, className) { return element("td", className, text); }

/// A table with a head. Each row is a list of cells, or of texts.
function table(head, rows, tall) {
  const frame = element("div", tall ? "scroll tall" : "scroll"), made = element("table"), top = element("tr");
  for (const title of head) top.append(element("th", title.startsWith("#") ? "number" : "", title.replace(/^#/, "")));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    row.forEach(
        (content, i) => line.append(
            content instanceof Node ? content : cell(content, (head[i] || "").startsWith("#") ? "number" : "")));
    body.append(line);
  }
  const headed = element("thead");
  headed.append(top);
  made.append(headed, body);
  frame.append(made);
  return frame;
}

function runHeading(number, more) {
  const heading = element("h3");
  heading.append(dot(number), element("span", "", runs[number].name + (more ? " – " + more : "")));
  return heading;
}

/// Adds a block for each run for which `build` returns nodes, and a sentence for the runs that lack the file.
function eachRun(section, absent, build) {
  const lacking = [];
  runs.forEach((run, number) => {
    const nodes = build(run, number);
    if (!nodes) return lacking.push(run.name);
    const block = element("div", "block");
    if (runs.length > 1) block.append(runHeading(number));
    block.append(...nodes);
    by(section).append(block);
  });
  if (lacking.length)
    by(section).append(element("p", "quiet", (runs.length > 1 ? lacking.join(", ") + ": " : "") + absent));
}

function stateBadge(run) {
  const good = run.state === "finished", bad = /^ended with|killed/.test(run.state);
  return element("span", "badge" + (good ? " good" : bad ? " bad" : ""), run.state);
}

function overview() {
  by("title").textContent = runs.length === 1 ? runs[0].name : "Comparison of " + runs.length + " runs";
  document.title = runs.map((run) => run.name).join(", ") + " – bert report";
  by("subtitle").textContent = runs.map((run) => run.directory).join(" · ");
  runs.forEach((run, number) => {
    const card = element("div", "card"), heading = runHeading(number, run.task || "pre-training"),
          tiles = element("dl", "tiles");
    const tile = (name, value, more) => {
      const box = element("div"), content = element("dd", "", value);
      if (more) content.append(" ", element("small", "", more));
      const title = element("dt", "", name);
      title.title = name;
      box.append(title, content);
      tiles.append(box);
    };
    const values = run.training.values, evaluated = run.evaluations.values, steps = run.training.step;
    tile("Steps", brief(steps.length ? steps[steps.length - 1] : 0), run.last_step ? "of " + brief(run.last_step) : "");
    tile("Training loss", brief(last(values.loss)));
    for (const name of run.evaluation_figures.slice(0, 4)) tile("Evaluation " + name, brief(last(evaluated[name])));
    tile("Sequences/s", brief(last(values.sequences_per_second)));
    tile("MFU", percent(last(values.mfu)));
    tile("Tokens", brief(last(run.training.tokens)));
    tile(
        "Time", last(run.training.hours) === undefined ? "–" : duration(last(run.training.hours)),
        run.restarts.length ? counted(run.restarts.length, "restart") : "");
    card.append(heading, stateBadge(run), tiles);
    by("overview").querySelector(".cards").append(card);
  });
}

function everyName(kind, first) {
  const names = new Set(runs.flatMap((run) => Object.keys(run[kind].values)));
  return [...first.filter((name) => names.delete(name)), ...[...names].sort()];
}

function curves() {
  const place = by("curves").querySelector(".charts");
  for (const name of everyName("training", kFirst)) {
    if (name.startsWith("data_wait_")) continue;  // drawn as "waiting"
    const [title, unit, zero, whole] =
        kTitles[name] || [name.startsWith("source ") ? "Masked-token loss of " + name.slice(7) : name, "", false];
    charts.push(new Chart(place, "training", name, {title, unit, zero, whole}));
  }
  const thinned = runs.filter((run) => run.training.step.length < run.training.lines);
  if (thinned.length)
    by("curves").append(element(
        "p", "quiet",
        thinned
            .map(
                (run) => `${run.name}: ${run.training.step.length} of ${
                    run.training.lines} lines are drawn, with the extremes of the loss`)
            .join("; ")));
}

function evaluations() {
  const place = by("evaluations").querySelector(".charts"),
        names = everyName("evaluations", runs[0].evaluation_figures);
  const levels = runs.map((run) => last(run.evaluations.values.unigram_entropy)).filter((value) => value !== undefined);
  for (const name of names) {
    if (["examples", "masked_tokens", "unigram_entropy"].includes(name)) continue;
    const spec = {title: name, unit: "", zero: false};
    if (name === "mlm_loss" && levels.length)
      Object.assign(spec, {level: levels[0], levelName: "guessing by frequency"});
    charts.push(new Chart(place, "evaluations", name, spec));
  }
  if (!names.length) by("evaluations").append(element("p", "quiet", "No evaluation is in metrics.jsonl."));
}

function differences() {
  if (runs.length < 2) return by("differences").remove();
  if (!data.differences.length) return by("differences").append(element("p", "quiet", "None but the run directories."));
  const block = element("div", "block");
  const rows = data.differences.map(
      ({key, values}) => [cell(key, "key mono"), ...values.map((value) => cell(value || "–", "mono"))]);
  block.append(table(["Key", ...runs.map((run) => run.name)], rows));
  by("differences").append(block);
}

/// A sentence with its masks marked.
function sentence(text) {
  const made = cell("", "sentence");
  text.split("[MASK]").forEach((part, i) => {
    if (i) made.append(element("mark", "", "[MASK]"));
    made.append(part);
  });
  return made;
}

function answerCell({expected, fillers}) {
  const made = cell("");
  if (!fillers.length) return made;
  const chip =
      element("span", fillers[0].token === expected ? "chip-answer right" : "chip-answer", fillers[0].token + " ");
  if (fillers[0].score !== null) chip.append(element("small", "", (100 * fillers[0].score).toFixed(0) + " %"));
  chip.title = fillers.map((filler) => filler.token + " " + percent(filler.score)).join("\n");
  made.append(chip);
  return made;
}

function answers() {
  eachRun("answers", "answers.jsonl is not there or is empty.", (run) => {
    if (!run.answers) return null;
    const shown = run.answers.evaluations, final = shown[shown.length - 1],
          right = run.answers.right[run.answers.right.length - 1].right;
    const rows = final.answers.map(
        (answer, i) =>
            [sentence(answer.text), cell(answer.expected),
             ...shown.map((each) => each.answers[i] ? answerCell(each.answers[i]) : cell(""))]);
    return [
      element(
          "p", "quiet",
          `The best word and its probability at ${shown.length} of ${run.answers.right.length} evaluations; ${
              right} of ${final.answers.length} are right at step ${final.step}.`),
      table(["Sentence", "Expected", ...shown.map((each) => "step " + each.step)], rows)
    ];
  });
}

/// A bar of shares of `whole`, one part for each [length, class].
function meter(parts, whole) {
  const made = element("span", "meter");
  for (const [length, className] of parts) {
    const part = element("i", className);
    part.style.width = Math.max(0, Math.min(100, 100 * length / whole)) + "%";
    made.append(part);
  }
  return made;
}

function meterCell(parts, whole) {
  const made = cell("");
  made.append(meter(parts, whole));
  return made;
}

function operatorTable(operators) {
  const longest = operators.reduce((most, each) => Math.max(most, each.self_ms), 0);
  const legend = element("p", "quiet");
  legend.append(
      element("span", "key-swatch"), "its limit", element("span", "key-swatch gain"), "would be gained at the limit");
  const rows = operators.map((each) => {
    const gain = each.limit_ms === null ? null : Math.max(0, each.self_ms - each.limit_ms);
    const bar = gain === null ? [[each.self_ms, ""]] : [[each.self_ms - gain, ""], [gain, "gain"]];
    return [
      cell(each.name, "key mono"), meterCell(bar, longest), brief(each.self_ms), brief(each.limit_ms), brief(gain),
      percent(each.share), brief(each.calls), brief(each.flops), brief(each.bytes)
    ];
  });
  return [
    legend, table(["Operator", "", "#ms", "#limit, ms", "#gain, ms", "#share", "#calls", "#FLOP", "#bytes"], rows)
  ];
}

function times() {
  eachRun("time", "profile.json is not there: no steps were profiled (profile.steps).", (run) => {
    const profile = run.profile;
    if (!profile) return null;
    const {gemm_tflops: products, copy_gb_per_second: copies} = profile.limits,
                                                      longest = profile.parts.reduce(
                                                          (most, part) => Math.max(most, part.ms), 0);
    const limits = [
      Number.isFinite(products) && products !== null ? `products ${brief(products)} TFLOP/s` : "",
      Number.isFinite(copies) && copies !== null ? `copies ${brief(copies)} GB/s` : ""
    ].filter(Boolean);
    const rows = profile.parts.map(
        (part) => [cell(part.name, "key"), meterCell([[part.ms, ""]], longest), brief(part.ms), percent(part.share)]);
    return [
      element(
          "p", "quiet",
          `A step takes ${brief(profile.step_ms)} ms (steps ${profile.steps.join(" to ")}).` +
              (limits.length ? ` Limits that this run measured: ${limits.join(", ")}.` : "")),
      table(["Part", "", "#ms", "#share"], rows), element("h3", "", "Largest operators"),
      ...operatorTable(profile.operators)
    ];
  });
}

/// A cell with a curve of the values.
function sparkCell(values) {
  const made = cell(""), known = values.map((y, x) => [x, y]).filter(([, y]) => y !== null && Number.isFinite(y));
  if (known.length < 2) return made;
  const low = Math.min(...known.map((p) => p[1])), high = Math.max(...known.map((p) => p[1])),
        svg = shape("svg", {class: "spark", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true"});
  svg.append(shape("polyline", {
    points: known
                .map(
                    ([x, y]) => (100 * x / (values.length - 1)).toFixed(1) + "," +
                        (18 - 16 * (high > low ? (y - low) / (high - low) : .5)).toFixed(1))
                .join(" ")
  }));
  made.append(svg);
  return made;
}

function layers() {
  eachRun("layers", "layers.jsonl is not there (report had no layers).", (run) => {
    if (!run.layers) return null;
    const {steps, rows} = run.layers, trust = rows.some((row) => row.trust_ratio.some((value) => value !== null));
    const head = ["Parameter", "#weight norm", "", "#update norm", "", ...(trust ? ["#trust ratio", ""] : [])];
    const lines = rows.map(
        (row) =>
            [cell(row.name, "key mono"), brief(last(row.weight_norm)), sparkCell(row.weight_norm),
             brief(last(row.update_norm)), sparkCell(row.update_norm),
             ...(trust ? [brief(last(row.trust_ratio)), sparkCell(row.trust_ratio)] : [])]);
    return [
      element(
          "p", "quiet",
          `The last value, and its course over ${steps.length} lines up to step ${steps[steps.length - 1]}.`),
      table(head, lines, true)
    ];
  });
}

function lengthBars({bins, counted}, number) {
  const width = 640, height = 170, top = 14, bottom = 146,
        svg = shape(
            "svg",
            {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Examples by length", class: "lengths"});
  const most = bins.reduce((a, bin) => Math.max(a, bin[2]), 1), step = width / bins.length;
  svg.append(shape("line", {class: "axis", x1: 0, x2: width, y1: bottom, y2: bottom}));
  bins.forEach(([shortest, longest, count], i) => {
    const tall = (bottom - top) * count / most, bar = shape("rect", {
                                                  class: "bar",
                                                  x: i * step + 2,
                                                  y: bottom - tall,
                                                  width: step - 4,
                                                  height: tall,
                                                  rx: 2,
                                                  "data-count": count,
                                                  style: "fill: " + colour(number)
                                                });
    bar.append(shape("title", {}, `${shortest} to ${longest} tokens: ${count} examples, ${percent(count / counted)}`));
    svg.append(bar);
    if (i % 2 === 0)
      svg.append(
          shape("text", {x: i * step + step / 2, y: bottom + 16, "text-anchor": "middle"}, `${shortest}–${longest}`));
  });
  return svg;
}

function lengths() {
  runs.forEach((run, number) => {
    const block = element("div", "block"), found = run.lengths;
    if (runs.length > 1) block.append(runHeading(number));
    if (found.absent) {
      block.append(element("p", "quiet", "Absent: " + found.absent));
    } else {
      block.append(
          element(
              "p", "quiet",
              `${found.examples} examples` +
                  (found.counted < found.examples ? `, of which ${found.counted} at even distances were counted` : "") +
                  `; ${brief(found.mean_length)} of at most ${found.max_seq_length} tokens on average. Packing saves ${
                      percent(found.padding_saved)} of the tokens that padding to the maximum would compute.`),
          lengthBars(found, number));
    }
    by("data-lengths").append(block);
  });
}

function checkpoints() {
  eachRun("checkpoints", "there are no checkpoints in the run directory.", (run) => {
    if (!run.checkpoints.length) return null;
    const list = table(
        ["Step", "#Size", "#Files", ""],
        run.checkpoints.map(
            (each) =>
                [String(each.step), each.problem ? "–" : bytes(each.bytes), each.problem ? "–" : String(each.files),
                 cell(each.problem, "quiet")]));
    list.classList.add("narrow");
    return [list];
  });
}

const moment = (seconds) => seconds === null || seconds === undefined ?
    "–" :
    new Date(1000 * seconds).toISOString().slice(0, 19).replace("T", " ");
const quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";

function processes() {
  eachRun(
      "processes",
      "attempts.jsonl is not there; the dotted lines in the curves are read from the times in metrics.jsonl.",
      (run) => {
        if (!run.attempts.length) return null;
        const latest = run.attempts[run.attempts.length - 1];
        const rows = run.attempts.map(
            (each) =>
                [moment(each.begin), brief(each.first_step), moment(each.end), brief(each.last_step),
                 each.exit_code === undefined ? "–" : String(each.exit_code),
                 each.reason === undefined ?
                     (each === latest ? "no end recorded: running, or killed" : "killed: no end recorded") :
                     firstLine(each.reason),
                 each.host, each.device, each.world_size, each.threads, each.precision]);
        return [
          table(
              [
                "Begin (UTC)", "#from step", "End", "#at step", "#exit code", "Reason", "Host", "Device", "#ranks",
                "#threads", "Precision"
              ],
              rows),
          element("h3", "", "Command of the last process"),
          element("pre", "command mono", latest.command.map(quoted).join(" ")),
          element("p", "quiet", `bert ${latest.version}, LibTorch ${latest.libtorch}`)
        ];
      });
}

function configuration() {
  runs.forEach((run, number) => {
    const keys = Object.keys(run.configuration).sort(), block = element("details", "block"),
          summary = element("summary");
    summary.append(
        runs.length > 1 ? run.name + ": " : "", keys.length ? keys.length + " settings" : "config.json is not there");
    block.append(summary);
    if (keys.length)
      block.append(
          table(["Key", "Value"], keys.map((key) => [cell(key, "key mono"), cell(run.configuration[key], "mono")])));
    by("configuration").append(block);
  });
}

function drawAll() {
  for (const chart of charts) chart.draw();
}

function controls() {
  runs.forEach((run, number) => {
    const chip = element("label", "chip"), box = element("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      if (box.checked)
        view.hidden.delete(number);
      else
        view.hidden.add(number);
      drawAll();
    });
    chip.append(box, dot(number), element("span", "", run.name));
    by("runs").append(chip);
  });
  for (const box of by("over").querySelectorAll("input")) {
    box.addEventListener("change", () => {
      view.over = box.value;
      drawAll();
    });
    if (location.hash === "#" + box.value) box.click();  // a link to #tokens
  }
  by("logarithmic").addEventListener("change", (event) => {
    view.logarithmic = event.target.checked;
    drawAll();
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) {
      width = innerWidth;
      drawAll();
    }
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => {
    each.open = true;
  }));
}

for (const part
         of [overview, curves, evaluations, differences, answers, times, layers, lengths, checkpoints, processes,
             configuration, controls, drawAll])
  part();
