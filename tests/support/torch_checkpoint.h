// Makes a checkpoint of PyTorch without PyTorch.
#pragma once

#include <string>

#include "tests/support/torch_archive.h"

namespace bert::testing {

inline std::string pickle_text(const std::string& text) {
  return std::string("X") + little_endian(text.size(), 4) + text;
}

/// A tensor of 2 x 3 floats, a view of storage `key`, which has 6. `legacy`: its id has a sixth value.
inline std::string pickle_tensor(const std::string& key, bool legacy, bool transposed = false) {
  return std::string("ctorch._utils\n_rebuild_tensor_v2\n((") + pickle_text("storage") + "ctorch\nFloatStorage\n" +
         pickle_text(key) + pickle_text("cpu") + "K\6" + (legacy ? "N" : "") + "tQ" + std::string("K\0", 2) +
         "K\2K\3\x86" + (transposed ? "K\1K\2" : "K\3K\1") + "\x86\x89" + "ccollections\nOrderedDict\n)RtR";
}

/// A checkpoint like NVIDIA's: a model, moments, and numbers.
inline std::string some_torch_pickle(bool legacy = false) {
  return std::string("\x80\x02}(") + pickle_text("model") + "ccollections\nOrderedDict\n)R(" +
         pickle_text("module.bert.pooler.dense.weight") + pickle_tensor("0", legacy) +
         pickle_text("module.bert.encoder.layer.0.intermediate.dense_act.weight") + pickle_tensor("1", legacy, true) +
         pickle_text("cls.predictions.bias") + "ctorch._utils\n_rebuild_parameter\n" + pickle_tensor("2", legacy) +
         "\x88N\x87Ruq\1}" + pickle_text("_metadata") + "}sb" + pickle_text("optimizer") + "}(" + pickle_text("lr") +
         std::string("G\x3f\xf8\0\0\0\0\0\0", 9) + pickle_text("exp_avg") + pickle_tensor("0", legacy) +
         pickle_text("step") + "J" + little_endian(7038, 4) + "u" + pickle_text("files") + "](K\3" +
         pickle_text("/data/part.hdf5") + "e" + pickle_text("epoch") + "\x8a\1\2" + "u.";
}

inline std::string some_storage(char fill) { return std::string(24, fill); }

inline std::string some_torch_archive() {
  return torch_archive({{"model/data.pkl", some_torch_pickle()},
                        {"model/byteorder", "little"},
                        {"model/data/0", some_storage('\x3f')},
                        {"model/data/1", some_storage('\x3e')},
                        {"model/data/2", some_storage('\x3d')},
                        {"model/version", "3\n"}});
}

inline std::string some_legacy_torch_file() {
  std::string bytes = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  bytes += "\x80\x02M\xe9\x03.";
  bytes += std::string("\x80\x02}(") + pickle_text("protocol_version") + "M\xe9\x03" + pickle_text("little_endian") +
           "\x88u.";
  bytes += some_torch_pickle(/*legacy=*/true) + std::string("\x80\x02](") + pickle_text("0") + pickle_text("1") +
           pickle_text("2") + "e.";
  for (const char fill : {'\x3f', '\x3e', '\x3d'}) bytes += little_endian(6, 8) + some_storage(fill);
  return bytes;
}

}  // namespace bert::testing
