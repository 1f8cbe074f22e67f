// The options of the verbs that tell queries from documents.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "app/retrieval/retrieval_prompts.h"

namespace bert {

/// Adds --query-prompt, --query-prompt-name, --corpus-prompt and --corpus-prompt-name, whose help begins with `where`.
inline void add_prompt_options(CLI::App& app, RetrievalPrompts& prompts, const std::string& where) {
  const auto add = [&app, &where](const std::string& option, PromptWish& wish, const std::string& what,
                                  const std::string& usual) {
    auto* text = app.add_option_function<std::string>(
        option + "-prompt", [&wish](const std::string& value) { wish.text = value; },
        where + "put before every " + what + "; empty: nothing");
    app.add_option_function<std::string>(
           option + "-prompt-name", [&wish](const std::string& value) { wish.name = value; },
           where + "the same by its name in the model; by default " + usual + ", if it is there")
        ->excludes(text);
  };
  add("--query", prompts.query, "query", "query");
  add("--corpus", prompts.corpus, "document", "document");
}

}  // namespace bert
