// Manual pages (roff with the macros of man) of command lines.
#pragma once

#include <string>
#include <vector>

#include "app/cli/description.h"

namespace bert {

/// The parts of a page that no command line has.
struct ManPageContext {
  std::string version;                // of bert: "0.1.0"
  std::string exit_codes;             // a paragraph
  std::vector<std::string> see_also;  // names of other pages: "bert-data"
};

/// The name of the page of a command, without the section: "bert-data" for `bert data`.
std::string man_page_name(const CommandDescription& command);

/// The page of a command in section 1. Its actions are parts of it, with their options, unless `list_actions` is true:
/// then they are a list, as they have pages of their own.
std::string man_page(const CommandDescription& command, const ManPageContext& context, bool list_actions);

}  // namespace bert
