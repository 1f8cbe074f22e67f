#include "app/checkpoint/position_rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cuda_ext/names.h"

namespace bert {

at::Tensor longer_positions(const at::Tensor& table, const at::Tensor& initial, PositionRows rows) {
  const int64_t before = table.size(0), after = initial.size(0);
  switch (rows) {
    case PositionRows::kRepeat: {
      const at::Tensor places = at::arange(after, at::TensorOptions(at::kLong)).remainder(before);
      return table.index_select(0, places.to(table.device()));
    }
    case PositionRows::kInterpolate:
      return at::upsample_linear1d(table.to(at::kFloat).t().unsqueeze(0), {after}, /*align_corners=*/true)
          .squeeze(0)
          .t()
          .contiguous()
          .to(table.scalar_type());
    case PositionRows::kRandom:
      break;
  }
  const at::Tensor behind = initial.narrow(0, before, after - before);
  return at::cat({table, behind.to(table.device(), table.scalar_type())});
}

std::string lengthen_positions(StateDict& weights, StateDict& optimizer, const at::Tensor& initial, PositionRows rows) {
  const at::Tensor* table = weights.find(kPositionTable);
  if (table == nullptr || table->size(0) >= initial.size(0)) return {};
  const int64_t before = table->size(0), after = initial.size(0);
  const auto lengthen = [&](StateDict& entries, const auto& longer) {
    StateDict changed;
    for (const auto& item : entries) {
      const bool fits =
          item.key().ends_with(kPositionTable) && item.value().sizes() == at::IntArrayRef{before, initial.size(1)};
      changed.insert(item.key(), fits ? longer(item.key(), item.value()) : item.value());
    }
    entries = std::move(changed);
  };
  lengthen(weights,
           [&](const std::string&, const at::Tensor& value) { return longer_positions(value, initial, rows); });
  lengthen(optimizer, [&](const std::string& name, const at::Tensor& value) {
    if (!name.starts_with("exp_avg")) return longer_positions(value, initial, rows);
    if (rows == PositionRows::kInterpolate) return at::zeros({after, value.size(1)}, value.options());
    return at::cat({value, at::zeros({after - before, value.size(1)}, value.options())});
  });
  return fmt::format("its table of {} positions gets {} rows (initial_positions={})", before, after,
                     name_of_value(rows));
}

}  // namespace bert
