// The prompts that stand before queries and before documents.
#pragma once

#include <optional>
#include <string>

namespace bert {

/// The wish for a prompt: its text, or the name of one of the model's.
struct PromptWish {
  std::optional<std::string> text, name;
  [[nodiscard]] bool given() const { return text || name; }
};

struct RetrievalPrompts {
  PromptWish query, corpus;
  [[nodiscard]] bool given() const { return query.given() || corpus.given(); }
};

}  // namespace bert
