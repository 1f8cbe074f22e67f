#include "tests/fuzz/targets/fuzz_targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace bert::testing {

std::vector<FuzzTarget> fuzz_targets() {
  return {dump_target(), sentences_target(), shard_target(),     tasks_target(),      tensor_bundle_target(),
          text_target(), tfrecord_target(),  tokenizer_target(), torch_file_target(), wikitext_target()};
}

void require(bool right, const char* what) {
  if (!right) throw std::logic_error(what);
}

MemoryFile::MemoryFile(std::string_view content) : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
  while (!content.empty()) {
    const ssize_t written = write(descriptor_.get(), content.data(), content.size());
    if (written <= 0) throw std::runtime_error("cannot write to a file in memory");
    content.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace bert::testing
