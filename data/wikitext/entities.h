// Character references of HTML.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// "name hex hex|name hex|...": every named reference with its code points.
extern const std::string_view kEntityNames;

/// Appends `text` with its references decoded: named (&eacute;), decimal (&#233;), hexadecimal (&#xE9;). A reference to no
/// character becomes nothing. An unknown name stays as it is. `append` appends a reference's text to `out`.
void decode_references(std::string_view text, std::string& out,
                       void (*append)(std::string_view value, std::string& out) = nullptr);

}  // namespace bert
