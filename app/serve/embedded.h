// Files of this directory that the program contains. CMake makes their source.
#pragma once

#include <string_view>

namespace bert {

extern const std::string_view kPage;     // page.html
extern const std::string_view kOpenApi;  // openapi.json

}  // namespace bert
