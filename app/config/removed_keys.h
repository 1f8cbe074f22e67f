// The keys that configurations had in the release before.
#pragma once

#include <string>

#include "app/parse/json_tree.h"

namespace bert {

struct RemovedKey {
  const char* pointer;
  const char* instead;  // a sentence for the person who has the key in a file
  const char*
      meaning;  // the value, as JSON, that the program always has now; null: no value changes what a run computes

  /// True if a run with `value` is one that the program can still do.
  [[nodiscard]] bool keeps_meaning(const JsonNode& value) const;
};

/// The removed key at `pointer`, null if there was none.
const RemovedKey* removed_key(const std::string& pointer);

}  // namespace bert
