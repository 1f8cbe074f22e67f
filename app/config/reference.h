// The reference of all keys of a configuration, as Markdown.
#pragma once

#include <string>

namespace bert {

/// The page configs/reference.md: tables of the keys of pre-training and of fine-tuning with type, range, default and
/// meaning, and if a key may change when a run resumes. They are made from visit_fields.
std::string config_reference();

}  // namespace bert
