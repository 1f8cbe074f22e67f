// Boost.Beast's parser of a request, for the files of this room.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string_view>

#include "app/http/request_head.h"

namespace bert {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

/// parse_request_head() with a new parser, which is then ready for the body.
RequestHead parse_request_head(std::string_view head, RequestParser& parser);

}  // namespace bert
