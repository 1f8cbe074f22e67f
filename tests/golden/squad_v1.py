"""Writes squad_v1.json: the figures of SQuAD's evaluate-v1.1.py for the real predictions in ../shared/data/squad.

Needs that script, which is not a package (written with it and Python 3.11):
python3 tests/golden/squad_v1.py evaluate-v1.1.py ../shared/data/squad > tests/golden/squad_v1.json
"""
import importlib.util
import json
import sys

script, data = sys.argv[1:]
spec = importlib.util.spec_from_file_location("official", script)
official = importlib.util.module_from_spec(spec)
spec.loader.exec_module(official)
with open(data + "/dev-v1.1.json") as file:
    dataset = json.load(file)["data"]
golden = {}
for name in ("BERT_ensemble", "logreg"):
    with open(f"{data}/predictions_v1.1_{name}.json") as file:
        golden[name] = official.evaluate(dataset, json.load(file))
json.dump(golden, sys.stdout, indent=1)
print()
