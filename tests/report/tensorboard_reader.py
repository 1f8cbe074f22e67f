"""Reads event files with TensorBoard: tensorboard_reader.py LOGDIR prints JSON.

The tests run it with the Python that the environment variable BERT_TENSORBOARD_PYTHON names. Tried with tensorboard 2.21.0.
"""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata, plugin_data_pb2

accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
accumulator.Reload()
tags = accumulator.Tags()
result = {
    "scalars": {tag: [[e.step, e.value, e.wall_time] for e in accumulator.Scalars(tag)] for tag in tags["scalars"]},
    "histograms": {tag: [[e.step, e.histogram_value.num, e.histogram_value.min, e.histogram_value.max]
                         for e in accumulator.Histograms(tag)] for tag in tags["histograms"]},
    "texts": {}, "hparams": {}, "status": None,
}
for tag, content in accumulator.PluginTagToContent("text").items():
    result["texts"][tag] = accumulator.Tensors(tag)[-1].tensor_proto.string_val[0].decode()
for tag, content in accumulator.PluginTagToContent("hparams").items():
    data = plugin_data_pb2.HParamsPluginData.FromString(content)
    if tag == metadata.SESSION_START_INFO_TAG:
        result["hparams"] = {key: getattr(value, value.WhichOneof("kind"))
                             for key, value in data.session_start_info.hparams.items()}
    if tag == metadata.SESSION_END_INFO_TAG:
        result["status"] = data.session_end_info.status
json.dump(result, sys.stdout)
