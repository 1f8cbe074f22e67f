// Configurations to start from, with a comment at every key.
#pragma once

#include <string>
#include <vector>

namespace bert {

/// The kinds of starting files: "pretrain" and the tasks of fine-tuning.
std::vector<std::string> starting_tasks();

/// A configuration for `task`, one of starting_tasks(): JSON with comments, with the keys that people change, the help
/// of each, and the values of the recipe in configs/.
std::string starting_file(const std::string& task);

}  // namespace bert
