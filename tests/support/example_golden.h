// The examples and files of tests/golden/example_files.json, which other programs wrote.
#pragma once

#include <openssl/evp.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/examples/pretraining_data.h"
#include "data/formats/example_file.h"
#include "data/io/files.h"
#include "data/io/gzip.h"

namespace bert::testing {

class ExampleGolden {
 public:
  /// `path` is the path of the golden, and `directory` an empty one for the files.
  ExampleGolden(const std::string& path, std::string directory)
      : golden_(nlohmann::json::parse(read_file(path))), directory_(std::move(directory)) {}

  /// Writes the file `name` of the golden and returns its path.
  [[nodiscard]] std::string file(const std::string& name) const {
    const std::string path = directory_ + "/" + name, packed_path = path + ".packed";
    const std::string text = golden_.at("files").at(name);
    std::vector<unsigned char> packed(text.size());
    const int bytes = EVP_DecodeBlock(packed.data(), reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()));
    if (bytes < 0) throw std::runtime_error(name + ": bad base64");
    std::ofstream(packed_path, std::ios::binary)
        .write(reinterpret_cast<const char*>(packed.data()), bytes - padding(text));
    SequentialFile unpacked(packed_path);
    std::string content(size_t{1} << 20, '\0');
    content.resize(unpacked.read(content.data(), content.size()));
    std::ofstream(path, std::ios::binary) << content;
    std::filesystem::remove(packed_path);
    return path;
  }

  /// The list "examples" of the golden, or "pairs".
  [[nodiscard]] std::vector<PretrainingExample> examples(const char* list = "examples") const {
    std::vector<PretrainingExample> examples;
    for (const auto& each : golden_.at(list)) {
      examples.push_back({each.at("input_ids"), each.at("segment_b_start"), each.at("masked_positions"),
                          each.at("masked_ids"), each.at("is_random_next")});
    }
    return examples;
  }

  [[nodiscard]] int64_t max_seq_length() const { return golden_.at("max_seq_length"); }
  [[nodiscard]] int64_t max_predictions() const { return golden_.at("max_predictions_per_seq"); }

 private:
  static int padding(const std::string& text) { return text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0; }

  nlohmann::json golden_;
  std::string directory_;
};

/// All examples that a reader has left.
inline std::vector<PretrainingExample> read_examples(ExampleReader& reader) {
  std::vector<PretrainingExample> examples;
  for (PretrainingExample example; reader.next(example);) examples.push_back(example);
  return examples;
}

inline std::vector<PretrainingExample> read_examples(const std::string& path, const Vocabulary* vocabulary = nullptr) {
  return read_examples(*open_examples(path, vocabulary));
}

}  // namespace bert::testing
