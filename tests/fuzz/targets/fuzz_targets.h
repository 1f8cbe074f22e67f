// The readers of bytes from outside that libFuzzer feeds (tests/run.sh --fuzz), each with inputs to start from. A regular
// test reads the same inputs and some damaged ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/io/descriptor.h"

namespace bert::testing {

struct FuzzTarget {
  std::string name;
  std::vector<std::string> seeds;  // valid files, or text that reaches many branches
  /// Reads any bytes. Throws DataError for bad ones, and std::logic_error for a wrong result.
  void (*read)(std::string_view bytes);
};

FuzzTarget dump_target();
FuzzTarget sentences_target();
FuzzTarget shard_target();
FuzzTarget tasks_target();
FuzzTarget tensor_bundle_target();
FuzzTarget text_target();
FuzzTarget tfrecord_target();
FuzzTarget tokenizer_target();
FuzzTarget torch_file_target();
FuzzTarget wikitext_target();

/// All of these.
std::vector<FuzzTarget> fuzz_targets();

/// Throws std::logic_error with `what` if `right` is false.
void require(bool right, const char* what);

/// A file in memory, for readers that want a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content);
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_.get()); }

 private:
  Descriptor descriptor_;
};

}  // namespace bert::testing
