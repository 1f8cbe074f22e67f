#include "app/cli/command_line.h"
#include "app/verbs/data/actions.h"

namespace bert {
namespace {

constexpr Action kExtractActions[] = {
    {"wikipedia", data_extract_wikipedia, "a dump of MediaWiki: the prose of its articles"},
    {"text", data_extract_text, "text of any kind: plain, packed, JSON lines, directories"},
};

}  // namespace

int data_extract(int argc, char** argv) {
  return run_action({.program = "bert data extract",
                     .example = "bert data extract text books/ news.jsonl.gz --output extracted",
                     .actions = kExtractActions},
                    argc, argv);
}

}  // namespace bert
