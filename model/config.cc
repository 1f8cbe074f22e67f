#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

namespace bert {
namespace {

/// Collects the values that visit_fields does not allow. NaN is out of every range.
struct AllowedCheck {
  std::vector<BertConfigProblem>& found;

  template <class Number>
  void operator()(const char* field, Number value, const char* /*help*/, Number low, Number high) {
    if (value >= low && value <= high) return;
    found.push_back({field, fmt::format("{} is {}, must be from {} to {}", field, value, low, high)});
  }
  void operator()(const char* field, int64_t value, const char* help, int low, int high) {
    (*this)(field, value, help, int64_t{low}, int64_t{high});
  }
  void operator()(const char* field, const std::string& value, const char* /*help*/,
                  std::initializer_list<const char*> allowed) {
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
    found.push_back({field, fmt::format("{} is \"{}\", must be one of: {}", field, value, fmt::join(allowed, ", "))});
  }
};

}  // namespace

std::vector<BertConfigProblem> problems(const BertConfig& config) {
  std::vector<BertConfigProblem> found;
  BertConfig::visit_fields(config, AllowedCheck{found});
  if (config.num_attention_heads > 0 && config.hidden_size % config.num_attention_heads != 0) {
    found.push_back(
        {"num_attention_heads", fmt::format("num_attention_heads is {}, must divide hidden_size, which is {}",
                                            config.num_attention_heads, config.hidden_size)});
  }
  return found;
}

}  // namespace bert
