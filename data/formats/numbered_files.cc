#include "data/formats/numbered_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <utility>

#include "data/io/error.h"

namespace bert {

void check_numbered_files(const std::string& directory, const std::vector<std::string>& paths) {
  static const std::regex kNumbered(R"((.*?)(\d{5})-of-(\d{5})(.*))");
  using Kind = std::pair<std::string, std::string>;               // what is before and behind the numbers
  std::map<Kind, std::map<std::string, std::set<int>>> numbered;  // kind, total as in the name, numbers
  for (const std::string& path : paths) {
    const std::string name = std::filesystem::path(path).filename().string();
    std::smatch part;
    if (std::regex_match(name, part, kNumbered)) numbered[{part[1], part[4]}][part[3]].insert(std::stoi(part[2]));
  }
  for (const auto& [kind, totals] : numbered) {
    const auto name = [&kind = kind](int number, const std::string& total) {  // clang 14 captures no binding by itself
      return fmt::format("{}{:05}-of-{}{}", kind.first, number, total, kind.second);
    };
    if (totals.size() > 1) {
      const auto &first = *totals.begin(), &last = *totals.rbegin();
      throw DataError(fmt::format("{}: has files of two creations, such as {} and {}: remove one of them", directory,
                                  name(*first.second.begin(), first.first), name(*last.second.begin(), last.first)));
    }
    const auto& [total, numbers] = *totals.begin();
    for (int number = 0; number < std::stoi(total); ++number) {
      if (!numbers.contains(number)) {
        throw InputMissing(
            fmt::format("{}: {} is missing; {} of its {} files are there. Run the command that made "
                        "them again, it continues, or copy the rest.",
                        directory, name(number, total), numbers.size(), std::stoi(total)));
      }
    }
  }
}

}  // namespace bert
