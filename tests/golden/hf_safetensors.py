"""Writes hf_safetensors.json: a small file of Hugging Face's safetensors, in hexadecimal digits, with its values.

The output names the versions. Run: python tests/golden/hf_safetensors.py > tests/golden/hf_safetensors.json
"""

import json

import numpy as np
import safetensors
from safetensors.numpy import save

tensors = {
    "bert.pooler.dense.weight": np.array([[1.5, -2.0, 0.25], [3.0, 1e-30, -65504.0]], dtype=np.float32),
    "half": np.array([1.0, -0.5, 65504.0, 6e-8], dtype=np.float16),
    "step": np.array(7038, dtype=np.int64),
    "flags": np.array([True, False, True]),
    "empty": np.zeros((0, 4), dtype=np.float32),
}
print(json.dumps({
    "generator": f"safetensors {safetensors.__version__}, numpy {np.__version__}",
    "hex": save(tensors, metadata={"format": "pt"}).hex(),
    "tensors": {name: {"shape": list(value.shape), "values": [float(x) for x in value.flatten()]}
                for name, value in tensors.items()},
}, indent=1))
