"""Writes event_file.json: TensorBoard's own event files, of its messages and its writer of records.

Python 3.11 with tensorboard 2.21.0 and protobuf 7.36.2 (pure serialization; TensorFlow is not needed).
"""
import io
import json
import pathlib

import google.protobuf
import tensorboard
from tensorboard.compat.proto import event_pb2, histogram_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.text import metadata as text_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

TIME = 1700000000.125


def scalar(tag, value):
    return summary_pb2.Summary.Value(tag=tag, simple_value=value)


def text(tag, words):
    tensor = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]),
        string_val=[words.encode()])
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name=text_metadata.PLUGIN_NAME)
    return summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=summary_pb2.SummaryMetadata(plugin_data=plugin))


def hparams(tag, **data):
    content = plugin_data_pb2.HParamsPluginData(**data).SerializeToString(deterministic=True)
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name=hparams_metadata.PLUGIN_NAME, content=content)
    return summary_pb2.Summary.Value(tag=tag, tensor=hparams_metadata.NULL_TENSOR,
                                     metadata=summary_pb2.SummaryMetadata(plugin_data=plugin))


def session_start():
    info = plugin_data_pb2.SessionStartInfo(group_name="runs/first", start_time_secs=TIME)
    info.hparams["fused"].bool_value = True
    info.hparams["lr"].number_value = 0.006
    info.hparams["type"].string_value = "lamb"
    return hparams(hparams_metadata.SESSION_START_INFO_TAG, session_start_info=info)


def session_end():
    info = plugin_data_pb2.SessionEndInfo(status=1, end_time_secs=TIME + 60)  # STATUS_SUCCESS
    return hparams(hparams_metadata.SESSION_END_INFO_TAG, session_end_info=info)


def histogram(tag):  # of the values 0, 0.5, 30 in 30 ranges of width 1
    return summary_pb2.Summary.Value(tag=tag, histo=histogram_pb2.HistogramProto(
        min=0, max=30, num=3, sum=30.5, sum_squares=900.25,
        bucket_limit=[float(i + 1) for i in range(30)], bucket=[2.0] + [0.0] * 28 + [1.0]))


def event(step, time=TIME, **fields):
    return event_pb2.Event(wall_time=time, step=step, **fields)


def summary(*values):
    return summary_pb2.Summary(value=values)


def file_of(*events):
    stream = io.BytesIO()
    writer = RecordWriter(stream)
    for each in events:
        writer.write(each.SerializeToString(deterministic=True))
    writer.flush()
    return stream.getvalue().hex()


START = event_pb2.SessionLog(status=event_pb2.SessionLog.START, msg="continues from step 8")
golden = {
    "tensorboard": tensorboard.__version__,
    "protobuf": google.protobuf.__version__,
    "begun": file_of(
        event(0, file_version="brain.Event:2"),
        event(0, summary=summary(text("args/text_summary", "# α\n"), session_start())),
        event(2, TIME + 1, summary=summary(scalar("train/loss", 7.25), scalar("train/learning_rate", 1e-4))),
        event(2, TIME + 2, summary=summary(histogram("weights/a"))),
        event(300, TIME + 60, summary=summary(scalar("train/train_runtime", 0.0), session_end()))),
    "continued": file_of(
        event(9, file_version="brain.Event:2"),
        event(9, session_log=START),
        event(10, TIME + 1, summary=summary(scalar("eval/loss", -1.5)))),
}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(golden, indent=1) + "\n")
