// A directory that one process extracts text into, and what it stores for the next process after a kill.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/io/descriptor.h"

namespace bert {

/// Everything that decides the result of an extraction, by the names of the options.
using Settings = std::vector<std::pair<std::string, std::string>>;
/// Named numbers: counts, and a place in the input.
using Figures = std::vector<std::pair<std::string, int64_t>>;

/// The fields of a struct of counts, each name with `prefix` before it, appended to `figures`.
template <class Struct>
void add_figures(const std::string& prefix, const Struct& from, Figures& figures) {
  Struct::visit_fields(from, [&](const char* name, const auto& value) {
    figures.emplace_back(prefix + name, static_cast<int64_t>(value));
  });
}

/// The number called `name`. Throws DataError if there is none.
int64_t figure(const Figures& figures, const std::string& name);

/// The reverse of add_figures().
template <class Struct>
void read_figures(const Figures& figures, const std::string& prefix, Struct& to) {
  Struct::visit_fields(to, [&](const char* name, auto& value) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(figure(figures, prefix + name));
  });
}

/// DIR/00000.txt and so on, with the files of Note [Resuming an extraction] in extracted_text.h.
class ExtractionDirectory {
 public:
  /// Creates the directory, or takes an empty one, or one that a killed process left. Removes everything that its last
  /// save() does not count: files of text from number `files` on, and temporary ones. Throws IoError for any other
  /// directory, and if another process extracts into it; DataError if the killed process had other settings.
  ExtractionDirectory(std::string path, Settings settings);

  /// The figures of the last save(). Empty if there was none.
  [[nodiscard]] const std::optional<Figures>& saved() const { return saved_; }
  /// The path of a file of text.
  [[nodiscard]] std::string text_file(int64_t number) const;
  /// Stores figures: the files of text before number `files` are whole.
  void save(int64_t files, const Figures& figures);
  /// Writes `summary` and marks the directory as complete.
  void finish(const std::string& summary);

 private:
  [[nodiscard]] std::string file(const std::string& name) const;
  void lock();
  void check_names(const std::vector<std::string>& names) const;
  int64_t read_state();

  std::string path_;
  Settings settings_;
  Descriptor lock_;
  std::optional<Figures> saved_;
};

}  // namespace bert
