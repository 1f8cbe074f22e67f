#include "optim/config.h"

#include <c10/util/Exception.h>

#include "cuda_ext/field_checks.h"

namespace bert {
namespace {

template <class Config>
void check(const char* prefix, const Config& config) {
  const std::vector<std::string> problems = problems_of(prefix, config);
  TORCH_CHECK_VALUE(problems.empty(), fmt::format("{}", fmt::join(problems, "\n")));
}

/// A scaler's numbers with those that no configuration sets.
struct ScalerConfig : AmpConfig {
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    AmpConfig::visit_fields(self, visit);
    AmpConfig::visit_constants(self, visit);
  }
};

}  // namespace

void validate(const OptimizerConfig& config) { check("optimizer.", config); }
void validate(const ScheduleConfig& config) { check("schedule.", config); }
void validate(const AmpConfig& config) { check("amp.", ScalerConfig{config}); }

}  // namespace bert
