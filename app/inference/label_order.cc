#include "app/inference/label_order.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "data/io/error.h"
#include "data/text/unicode.h"

namespace bert {

LabelMatch order_labels(Pretrained& model, const std::vector<std::string>& wanted) {
  std::vector<std::string>& labels = model.model.labels;
  if (labels == wanted) return LabelMatch::kSame;
  std::vector<std::string> names;
  for (const std::string& label : labels) names.push_back(lower_case(label));
  std::vector<int64_t> rows;  // of the head, for each wanted label that the model has
  for (const std::string& label : wanted) {
    const auto place = std::find(names.begin(), names.end(), lower_case(label));
    if (place != names.end()) rows.push_back(place - names.begin());
  }
  if (labels.size() != wanted.size() || (!rows.empty() && rows.size() != wanted.size())) {
    throw DataError(fmt::format("{}: has the {} classes {}; expected the {} classes {}", model.name, labels.size(),
                                fmt::join(labels, ", "), wanted.size(), fmt::join(wanted, ", ")));
  }
  labels = wanted;
  if (rows.empty()) return LabelMatch::kByPosition;
  const at::Tensor order = at::tensor(rows);
  StateDict weights;
  for (const auto& item : model.weights) {
    const bool head = item.key().starts_with("classifier.");
    weights.insert(item.key(), head ? item.value().index_select(0, order) : item.value());
  }
  model.weights = std::move(weights);
  std::vector<double> thresholds;
  for (const int64_t row : rows) {
    if (!model.model.label_thresholds.empty())
      thresholds.push_back(model.model.label_thresholds[static_cast<size_t>(row)]);
  }
  model.model.label_thresholds = std::move(thresholds);
  return LabelMatch::kByName;
}

}  // namespace bert
