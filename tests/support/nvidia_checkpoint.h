// A checkpoint of small_bert() as NVIDIA's BERT saves it.
#pragma once

#include <string>
#include <vector>

#include "tests/support/foreign_testing.h"
#include "tests/support/torch_checkpoint.h"

namespace bert::testing {

inline std::string pickle_integers(const std::vector<int64_t>& numbers) {
  std::string bytes = "(";
  for (const int64_t number : numbers) bytes += "J" + little_endian(static_cast<uint64_t>(number), 4);
  return bytes + "t";
}

/// A checkpoint {"model": tensors, "epoch": 3} in an archive; every tensor has a storage of its own.
inline std::string torch_archive_of(const std::vector<TensorSource>& tensors) {
  std::string pickle = std::string("\x80\x02}(") + pickle_text("model") + "}(";
  std::vector<ArchiveMember> storages;
  for (const TensorSource& tensor : tensors) {
    const std::string key = std::to_string(storages.size());
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    for (size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * tensor.shape[i];
    const std::string bytes(tensor.bytes());
    pickle += pickle_text(tensor.name) + "ctorch._utils\n_rebuild_tensor_v2\n((" + pickle_text("storage") +
              "ctorch\nFloatStorage\n" + pickle_text(key) + pickle_text("cuda:0") + "J" +
              little_endian(bytes.size() / 4, 4) + "tQ" + std::string("K\0", 2) + pickle_integers(tensor.shape) +
              pickle_integers(strides) + "\x89NtR";
    storages.push_back({"archive/data/" + key, bytes});
  }
  pickle += "u" + pickle_text("epoch") + "K\3u.";
  storages.insert(storages.begin(), {{"archive/data.pkl", pickle}, {"archive/byteorder", "little"}});
  return torch_archive(storages);
}

inline std::string replaced(std::string text, const std::string& old_part, const std::string& new_part) {
  if (const size_t place = text.find(old_part); place != std::string::npos)
    text.replace(place, old_part.size(), new_part);
  return text;
}

/// small_bert() as NVIDIA's run_pretraining.py saves it under DistributedDataParallel, the vocabulary padded to 16.
inline std::vector<TensorSource> nvidia_tensors() {
  std::vector<TensorSource> tensors = small_bert_tensors();
  for (TensorSource& tensor : tensors) {
    if (tensor.name == "bert.embeddings.word_embeddings.weight") tensor = counting_tensor(tensor.name, {16, 4}, 0);
    if (tensor.name == "cls.predictions.bias") tensor = counting_tensor(tensor.name, {16}, 7);
    for (const char* activated : {"intermediate.dense.", "pooler.dense.", "transform.dense."})
      tensor.name = replaced(tensor.name, activated, replaced(activated, "dense.", "dense_act."));
    tensor.name = "module." + tensor.name;
  }
  tensors.push_back(tensors.front());
  tensors.back().name = "module.cls.predictions.decoder.weight";
  return tensors;
}

}  // namespace bert::testing
