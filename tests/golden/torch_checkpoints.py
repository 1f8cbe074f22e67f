"""Writes torch_checkpoints.json: small checkpoints of PyTorch, in hexadecimal digits, with the values that PyTorch reads.

The output names the version. Run: python tests/golden/torch_checkpoints.py > tests/golden/torch_checkpoints.json
"""

import argparse
import collections
import io
import json
import os

import torch

torch.manual_seed(1)


def saved(value, **options):
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64",
          torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL", torch.int8: "I8", torch.int16: "I16"}


def values(tensors):
    return {name: {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "values": [float(x) for x in t.detach().flatten()]}
            for name, t in tensors.items()}


def case(value, tensors, left_out=(), **options):
    return {"file": saved(value, **options).hex(), "tensors": values(tensors), "left_out": list(left_out)}


# As NVIDIA's run_pretraining.py saves it.
model = collections.OrderedDict(
    (f"module.{name}", torch.randn(shape).half()) for name, shape in
    {"bert.embeddings.word_embeddings.weight": (8, 4), "bert.encoder.layer.0.intermediate.dense_act.weight": (6, 4),
     "bert.encoder.layer.0.intermediate.dense_act.bias": (6,)}.items())
nvidia = {
    "model": model,
    "optimizer": {"state": {0: {"step": 7038, "exp_avg": torch.randn(3), "exp_avg_sq": torch.randn(3)}},
                  "param_groups": [{"lr": 6e-3, "betas": (0.9, 0.999), "params": [0], "bias_correction": True}]},
    "master params": [torch.randn(8, 4), torch.randn(6, 4)],
    "files": [3, "/data/part_3.hdf5"],
    "epoch": 2,
    "grad_scaler": {"scale": 2.0 ** 20, "_growth_tracker": 17},
    "data_loader": None,
    "args": argparse.Namespace(seed=42, device=torch.device("cuda:1"), dtype=torch.float16, size=torch.Size([2, 3])),
    "seen": collections.defaultdict(int, {"a": 1}),
}
rest = [key for key in nvidia if key != "model"]

# A state dict of a module: Parameters, versions of the modules as an attribute of the dict, a tied tensor.
module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
state = module.state_dict()
state["tied.weight"] = state["0.weight"]
parameters = {"weight": torch.nn.Parameter(torch.randn(2, 2)), "note": "text"}

whole = torch.arange(24, dtype=torch.float32)
views = {"transposed": whole.view(4, 6).t(), "rows": whole.view(4, 6)[1:3], "columns": whole.view(4, 6)[:, 1:5:2],
         "cube": whole.view(2, 3, 4).permute(2, 0, 1), "scalar": torch.tensor(7038), "empty": torch.zeros(0, 4),
         "double": torch.randn(2, dtype=torch.float64), "brain": torch.randn(3).bfloat16(), "flags": torch.tensor([True, False]),
         "bytes": torch.tensor([0, 255], dtype=torch.uint8), "i8": torch.tensor([-7], dtype=torch.int8),
         "i16": torch.tensor([-700], dtype=torch.int16), "i32": torch.tensor([2**31 - 1], dtype=torch.int32)}


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/executed",)


weight = torch.randn(4)
bad = {
    "it wants Python's posix.system": saved({"model": Evil(), "w": weight}),
    "it wants Python's torch.nn.modules.container.Sequential": saved(module),
    "it wants Python's torch._utils._rebuild_sparse_tensor": saved({"w": torch.eye(2).to_sparse()}),
    "it wants Python's torch.ComplexFloatStorage": saved({"w": torch.zeros(2, dtype=torch.complex64)}),
    "repeats the elements of its storage": saved({"w": torch.zeros(1).expand(1000000)}),
    "it holds no dict": saved([weight]),
    "it holds no tensors": saved({"epoch": 1, "model": {"a": 1}}),
    "a key that is no text": saved({7: weight}),
    "epoch is no tensor": saved({"model": {"w": weight, "epoch": 1}}),
    "is TorchScript": None,
}
script = io.BytesIO()
torch.jit.save(torch.jit.trace(module, torch.randn(1, 3)), script)
bad["is TorchScript"] = script.getvalue()

old = {"_use_new_zipfile_serialization": False}
print(json.dumps({
    "generator": f"torch {torch.__version__}",
    "good": {
        "nvidia": case(nvidia, model, rest),
        "nvidia_old": case(nvidia, model, rest, **old),
        "state_dict": case(state, state),
        "state_dict_old": case(state, state, **old),
        "parameters": case(parameters, {"weight": parameters["weight"]}, ["note"]),
        "views": case({"state_dict": views}, views),
        "views_old": case({"state_dict": views}, views, **old),
        "protocol_4": case(nvidia, model, rest, pickle_protocol=4),
        "protocol_5_old": case(nvidia, model, rest, pickle_protocol=5, **old),
    },
    "bad": {message: data.hex() for message, data in bad.items()},
}, indent=1))
