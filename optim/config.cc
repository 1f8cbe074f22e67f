#include "optim/config.h"

#include <c10/util/Exception.h>

#include <initializer_list>
#include <string>

namespace bert {
namespace {

/// Visits the fields of a configuration; those with a range must lie in it, those with a list of words must be one of
/// them.
struct RangeCheck {
  const char* where;

  template <class T>
  void operator()(const char*, const T&, const char*) const {}

  template <class T, class Bound>
  void operator()(const char* name, const T& value, const char* help, Bound low, Bound high) const {
    const auto number = static_cast<double>(value);
    TORCH_CHECK_VALUE(number >= static_cast<double>(low) && number <= static_cast<double>(high), where, ".", name,
                      " is ", value, ", expected ", low, " to ", high, " (", help, ")");
  }

  void operator()(const char* name, const std::string& value, const char*,
                  std::initializer_list<const char*> words) const {
    std::string list;
    for (const char* word : words) {
      if (value == word) return;
      list += std::string(list.empty() ? "" : ", ") + word;
    }
    TORCH_CHECK_VALUE(false, where, ".", name, " is \"", value, "\", expected one of: ", list);
  }
};

template <class Config>
void check_ranges(const char* where, const Config& config) {
  Config::visit_fields(config, RangeCheck{where});
}

}  // namespace

void validate(const OptimizerConfig& config) {
  check_ranges("optimizer", config);
  TORCH_CHECK_VALUE(config.max_trust_ratio == 0.0 || config.min_trust_ratio <= config.max_trust_ratio,
                    "optimizer.min_trust_ratio is ", config.min_trust_ratio, ", expected at most max_trust_ratio ",
                    config.max_trust_ratio);
}

void validate(const ScheduleConfig& config) { check_ranges("schedule", config); }

void validate(const AmpConfig& config) {
  check_ranges("amp", config);
  TORCH_CHECK_VALUE(!config.dynamic || config.growth_factor > 1.0, "amp.growth_factor is ", config.growth_factor,
                    ", expected above 1 where amp.dynamic is true");
  TORCH_CHECK_VALUE(!config.dynamic || config.backoff_factor < 1.0, "amp.backoff_factor is ", config.backoff_factor,
                    ", expected below 1 where amp.dynamic is true");
  TORCH_CHECK_VALUE(config.min_scale <= config.init_scale, "amp.min_scale is ", config.min_scale,
                    ", expected at most init_scale ", config.init_scale);
}

}  // namespace bert
