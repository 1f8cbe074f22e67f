"""Checks a file of ONNX with onnx.checker and runs it in ONNX Runtime: onnx_runtime.py MODEL INPUTS.json OUTPUTS.json

INPUTS.json is a list of calls, each an object of integer arrays. OUTPUTS.json gets a list of objects, {name: {shape, values}}.
The tests run it with the Python that the environment variable BERT_ONNX_PYTHON names. Tried with onnx 1.23.2 and onnxruntime 1.32.0.
"""
import json
import sys

import numpy
import onnx
import onnxruntime

model, inputs, outputs = sys.argv[1:]
onnx.checker.check_model(model, full_check=True)
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
results = []
for call in json.load(open(inputs)):
    values = session.run(names, {name: numpy.array(value, dtype=numpy.int64) for name, value in call.items()})
    results.append({name: {"shape": value.shape, "values": value.flatten().tolist()} for name, value in zip(names, values)})
json.dump(results, open(outputs, "w"))
