#include "app/train/log/run_summary.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/io/files.h"

namespace bert {

void RunSummary::take(const std::map<std::string, double>& figures) {
  for (const auto& [name, value] : figures) figures_[name] = value;
}

void RunSummary::write(int64_t applied) const {
  nlohmann::ordered_json summary = {{"steps", applied}, {"max_steps", max_steps_}, {"config_sha256", sha256_}};
  for (const auto& [name, value] : figures_) summary[name] = value;
  if (sequences_per_second_) summary["sequences_per_second"] = *sequences_per_second_;
  write_file(path_, summary.dump(2) + "\n");
}

void RunSummary::mend(int64_t applied) const {
  if (std::filesystem::exists(path_)) {
    const auto summary = nlohmann::json::parse(read_file(path_), nullptr, /*allow_exceptions=*/false);
    if (summary.is_object() && summary.contains("steps") && summary["steps"] == applied) return;
  }
  write(applied);
}

}  // namespace bert
