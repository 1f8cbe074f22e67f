#!/usr/bin/env python3
"""tests/scripts/report_page.py BUILD [DIRECTORY]: opens a page of `bert report` in headless Chromium, reads the curves out of it, and compares them
with metrics.jsonl. Makes two runs with texts that look like HTML. Screenshots at two widths, in light and in dark, go to DIRECTORY. Prints SKIPPED
without Chromium."""
import html.parser
import json
import math
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

HOSTILE = "</script><script>console.error('run')</script><img src=x onerror=console.error(1)>"


def lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def metrics(seed, rate):
    """The lines of a run of 400 steps, which another process continues after step 200."""
    draw, result = random.Random(seed), []
    for step in range(0, 401, 5):
        process = 1 if step <= 200 else 2
        elapsed = (step if process == 1 else step - 200) * 0.8 + 1
        clock = {"time": 1.7e9 + 1000 * process + elapsed, "elapsed_seconds": elapsed}
        if step > 0:
            loss = 3 + 5 * math.exp(-step * rate / 100) + draw.gauss(0, 0.08)
            losses = {"loss": loss, "mlm_loss": loss - 0.5, "nsp_loss": 0.5}
            optimizer = {"learning_rate": 1e-3 * min(step / 40, (410 - step) / 370), "grad_norm": 1 + draw.random(),
                         "loss_scale": 65536.0 * 2 ** (step // 150), "skipped_steps": int(step % 150 == 0)}
            rates = {"sequences_per_second": 80 + 4 * draw.random(), "tokens_per_second": 8000 + 400 * draw.random(),
                     "mfu": 0.42 + 0.02 * draw.random(), "data_wait_seconds": 0.01 * draw.random()}
            result.append({"step": step, "steps": 5, **losses, **optimizer, **rates, "tokens_per_rank": {"least": 3900, "most": 4100}, "fill": 0.96, **clock})
        if step % 50 == 0:
            loss = 3.1 + 5 * math.exp(-step * rate / 100)
            figures = {"mlm_loss": loss, "mlm_perplexity": math.exp(loss), "mlm_accuracy": 1 - loss / 9, "unigram_entropy": 6.2, "examples": 500}
            result.append({"step": step, "evaluation": figures, **clock})
    return result


def norms(step):
    """A line of layers.jsonl."""
    names = ["embeddings.word_embeddings", *(f"encoder.layer.{i}.{part}" for i in range(2) for part in ("attention.self.query", "output.dense"))]
    layers = [{"name": f"bert.{name}.weight", "weight_norm": 10 + i + step / 100, "update_norm": 0.1 / (1 + step / 100), "trust_ratio": 1 + i * step / 1000}
              for i, name in enumerate(names)]
    return {"step": step, "layers": layers}


def answers(step, name):
    """A line of answers.jsonl: the later a sentence, the later its answer is right."""
    texts = [("The capital of France is [MASK].", "paris"), ("They had been there for many [MASK].", "years"), (name + " [MASK]", "<b>")]
    others = [{"token_str": word, "score": 0.05} for word in ("of", "a", ",", ".")]
    best = [{"token_str": word if step > 100 * i else "the", "score": 0.1 + step / 1000} for i, (_, word) in enumerate(texts)]
    return {"step": step, "answers": [{"text": text, "expected": word, "fillers": [first, *others]} for (text, word), first in zip(texts, best)]}


def write_run(path, seed, rate, name):
    path.mkdir(parents=True)
    written = metrics(seed, rate)
    lines(path / "metrics.jsonl", written)
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": 405, "loss"')  # torn
    config = {"run_directory": str(path), "max_steps": 400, "stop_at_step": 0, "global_batch_size": 64, "seed": seed,
              "optimizer": {"name": "lamb", "lr": 1e-3 * rate}, "data": {"train": ["/absent/train"], "vocab_file": name}}
    (path / "config.json").write_text(json.dumps(config))
    (path / "summary.json").write_text(json.dumps({"steps": 400, "max_steps": 400}))
    begin = {"event": "begin", "time": 1.7e9 + 1000, "step": 0, "command": ["bert", "pretrain", "configs/quickstart.json", "data.vocab_file=" + name],
             "host": "node1", "version": "0.1.0", "libtorch": "2.11.0", "device": "cuda:0 (NVIDIA H100)", "threads": 16, "world_size": 8, "precision": "bf16",
             "pid": 4242}
    end = {"event": "end", "time": 1.7e9 + 2165, "step": 400, "exit_code": 0, "reason": "finished"}
    lines(path / "attempts.jsonl", [begin, {**begin, "time": 1.7e9 + 2000, "step": 200}, end])
    profile = {"steps": [10, 15], "step_ms": 8.5, "parts": [{"name": "forward", "ms": 3.5, "share": 0.41}],
               "operators": [{"name": "bert::attention", "calls": 2, "self_ms": 2.5, "share": 0.29, "flops": 1e9, "bytes": 1e6, "limit_ms": 1.75}],
               "limits": {"gemm_tflops": 0.25, "copy_gb_per_second": 40}}
    (path / "profile.json").write_text(json.dumps(profile))
    lines(path / "layers.jsonl", map(norms, range(0, 401, 50)))
    lines(path / "answers.jsonl", (answers(step, name) for step in range(0, 401, 50)))
    return written


class Curves(html.parser.HTMLParser):
    """The polylines of the page as numbers: {(kind, name, run): [(x, y)]}, and all of its text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.curves, self.figure, self.box, self.text, self.inside = {}, None, None, [], []
        self.outside = []

    def handle_starttag(self, tag, attributes):
        got = dict(attributes)
        self.outside += [value for key, value in attributes if key in ("src", "href") and not (value or "").startswith(("#", "data:"))]
        if tag in ("script", "style"):
            self.inside.append(tag)
        if tag == "figure":
            self.figure = (got.get("data-kind"), got.get("data-name"))
        elif tag == "svg":
            self.box = {key[5:].replace("-", "_"): value for key, value in got.items() if key.startswith("data-")}
        elif tag == "polyline" and got.get("class") == "curve":
            box = {key: float(value) for key, value in self.box.items() if key not in ("logarithmic", "over")}
            pixel = ((box["x_high"] - box["x_low"]) / (box["right"] - box["left"]), (box["y_high"] - box["y_low"]) / (box["bottom"] - box["top"]))
            places = [tuple(map(float, pair.split(","))) for pair in got["points"].split()]
            points = [(box["x_low"] + (x - box["left"]) * pixel[0], box["y_low"] + (box["bottom"] - y) * pixel[1]) for x, y in places]
            self.curves[(*self.figure, int(got["data-run"]))] = (points, pixel)

    def handle_endtag(self, tag):
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, text):
        if not self.inside:
            self.text.append(text)


def hours(line):
    """A run's hours at a line: its first process ended at step 200."""
    first_process = 200 * 0.8 + 1
    return (line["elapsed_seconds"] + (first_process if line["step"] > 200 else 0)) / 3600


def expected(written, kind, name, over):
    points, tokens, skipped = [], 0.0, 0
    for line in written:
        if "evaluation" not in line:
            tokens += line["steps"] * 64 / line["sequences_per_second"] * line["tokens_per_second"]
            skipped += line["skipped_steps"]
        x = {"step": line["step"], "tokens": tokens, "hours": hours(line)}[over]
        if kind == "evaluations" and "evaluation" in line:
            points.append((x, line["evaluation"][name]))
        elif kind == "training" and "evaluation" not in line:
            derived = {"skipped_steps": skipped, "waiting": line["data_wait_seconds"] / (line["steps"] * 64 / line["sequences_per_second"])}
            points.append((x, derived.get(name, line.get(name))))
    return points


def compare(curves, runs, over):
    wrong = []
    names = [("training", name) for name in ("loss", "mlm_loss", "learning_rate", "grad_norm", "loss_scale", "skipped_steps")]
    names += [("training", name) for name in ("sequences_per_second", "mfu", "waiting", "fill")]
    for kind, name in names + [("evaluations", "mlm_loss"), ("evaluations", "mlm_accuracy")]:
        for number, written in enumerate(runs):
            want = expected(written, kind, name, over)
            got, (pixel_x, pixel_y) = curves.get((kind, name, number), ([], (0, 0)))
            # The page writes places to a hundredth of a pixel.
            close = (abs(g[0] - w[0]) <= 0.02 * pixel_x and abs(g[1] - w[1]) <= 0.02 * pixel_y for g, w in zip(got, want))
            if len(got) != len(want) or not all(close):
                wrong.append(f"{kind} {name} of run {number} over {over}: {len(got)} points, {got[:2]}, want {len(want)}, {want[:2]}")
    return wrong


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    work = pathlib.Path(tempfile.mkdtemp())
    pictures = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else work)
    chromium = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")) if path), None)
    if not chromium:
        print("SKIPPED: there is no Chromium")
        return 0
    runs = [write_run(work / "runs/first", 1, 1.0, "vocab.txt"), write_run(work / "runs/second", 2, 1.6, HOSTILE)]
    page = work / "report.html"
    subprocess.run([build / "bert", "report", work / "runs/first", work / "runs/second", "--output", page], check=True)
    subprocess.run([build / "bert", "report", work / "runs/first", "--output", work / "one.html"], check=True)

    def show(width, scheme, *options, file=page, over=""):
        dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={work}/profile", f"--window-size={width},2600",
                   "--virtual-time-budget=5000", "--enable-logging=stderr", *dark, *options, f"file://{file}{over}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return done.stdout, re.findall(r"CONSOLE.*", done.stderr)

    wrong = []
    for over in ("step", "tokens", "hours"):
        for width in (1200, 500):
            dom, console = show(width, "light", "--dump-dom", over="#" + over)
            curves = Curves()
            curves.feed(dom)
            wrong += console + compare(curves.curves, runs, over)
            wrong += [f"from elsewhere: {curves.outside}"] if curves.outside else []
            text = "".join(curves.text)
            shown = (HOSTILE, "/optimizer/lr", "0.0016", "trust ratio", "paris", "node1", "bert::attention", "1.75", "0.75", "steps 10 to 15")
            wrong += [f"the page does not show {part}" for part in shown if part not in text]
    one = work / "one.html"
    for name, width, scheme, file in (("wide-light", 1200, "light", page), ("narrow-light", 500, "light", page), ("wide-dark", 1200, "dark", page),
                                      ("one-light", 1200, "light", one)):
        wrong += show(width, scheme, f"--screenshot={pictures}/report-{name}.png", file=file)[1]
    if pictures != work:
        shutil.rmtree(work)
    print("\n".join(map(str, wrong)) if wrong else f"the curves agree with metrics.jsonl; screenshots in {pictures}")
    return bool(wrong)


sys.exit(main())
