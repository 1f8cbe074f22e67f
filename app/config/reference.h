// The reference of all keys of a configuration, as Markdown.
#pragma once

#include <string>

namespace bert {

/// Tables of the keys of pre-training and of fine-tuning: type, range, default, meaning, and if a key may change when a
/// run resumes. They are made from visit_fields.
std::string config_reference();

/// `page` with the reference between the lines kReferenceBegin and kReferenceEnd. Throws DataError, with `name`, if the
/// page does not have both lines.
std::string with_reference(const std::string& page, const std::string& name);

inline constexpr const char* kReferenceBegin = "<!-- The output of `bert config reference` begins here. -->";
inline constexpr const char* kReferenceEnd = "<!-- The output of `bert config reference` ends here. -->";

}  // namespace bert
