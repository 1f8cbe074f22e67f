// The formats of other programs that this program opens by themselves, without an option that names them.
#pragma once

#include <span>
#include <string>

#include "app/interop/foreign_checkpoint.h"

namespace bert {

struct ForeignFormat {
  const char* name;                             // as `bert convert --from` spells it
  bool (*recognises)(const std::string& path);  // looks at names of files, and at the first bytes of one
  /// Throws DataError, InputMissing, IoError; RefusedError for a pickle that nobody trusts.
  ForeignCheckpoint (*read)(const std::string& path, const ForeignOptions& options);
};

std::span<const ForeignFormat> foreign_formats();

/// The format of `path`; nullptr if no format recognises it.
const ForeignFormat* foreign_format_of(const std::string& path);

/// Throws DataError for a directory of transformers whose weights are in a form that no format here reads: Keras, Flax, an
/// adapter alone. Does nothing for other paths.
void refuse_other_weights(const std::string& path);

}  // namespace bert
