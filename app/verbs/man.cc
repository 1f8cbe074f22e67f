#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/man_page.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/programs.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"

namespace bert {
namespace {

/// All pages by name: bert, bert-VERB, bertrun.
std::map<std::string, std::string> man_pages() {
  const Programs programs = describe_programs();
  ManPageContext context{.version = BERT_VERSION, .exit_codes = kExitCodes, .see_also = {"bert", "bertrun"}};
  std::map<std::string, std::string> pages;
  for (const CommandDescription& verb : programs.bert.actions)
    pages[man_page_name(verb)] = man_page(verb, context, /*list_actions=*/false);
  context.see_also = {"bert"};
  pages["bertrun"] = man_page(programs.bertrun, context, /*list_actions=*/false);
  context.see_also = {"bertrun"};
  pages["bert"] = man_page(programs.bert, context, /*list_actions=*/true);
  return pages;
}

}  // namespace

int man_command(int argc, char** argv) {
  CLI::App app("Prints the manual page of a verb, of bert or of bertrun, or writes all pages into a directory.",
               "bert man");
  app.footer(
      "An installation has the pages: man bert-pretrain.\n"
      "Example: bert man pretrain | man -l -\n"
      "         bert man --output share/man/man1");
  std::string page = "bert", output;
  CLI::Option* named = app.add_option("VERB", page, "a verb, or bertrun; default: bert");
  app.add_option("--output", output, "directory for the pages of all verbs, of bert and of bertrun")->excludes(named);
  if (!parse_command_line(app, argc, argv)) return kOk;
  const std::map<std::string, std::string> pages = man_pages();
  if (output.empty()) {
    auto found = pages.find(page);
    if (found == pages.end()) found = pages.find("bert-" + page);
    std::vector<std::string> known;
    known.reserve(pages.size());
    for (const auto& [name, text] : pages) known.push_back(name.starts_with("bert-") ? name.substr(5) : name);
    if (found == pages.end()) throw UsageError(unknown_word("page", page, known, app.get_name()));
    fmt::print("{}", found->second);
    return kOk;
  }
  make_directories(output);
  for (const auto& [name, text] : pages) {
    write_file((std::filesystem::path(output) / (name + ".1")).string(), text);
  }
  return kOk;
}

}  // namespace bert
