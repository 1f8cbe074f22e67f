#include "data/io/arrow_library.h"

#include "data/io/error.h"
#include "data/io/plugin.h"

namespace bert {

const ArrowLibrary& arrow_library() {
  constexpr const char* kName = "libbert_arrow.so";
  static const ArrowLibrary* const library = [] {
    if (!std::filesystem::exists(plugin_path(kName))) {
      throw InputMissing(
          "Arrow and Parquet files need libbert_arrow.so, which this build has not: run `app/setup.sh --arrow`, which "
          "gets Arrow (55 MB) and builds it");
    }
    return reinterpret_cast<decltype(&bert_arrow_library)>(
        open_plugin(kName, "bert_arrow_library", "run `app/setup.sh --arrow` again"))();
  }();
  return *library;
}

}  // namespace bert
