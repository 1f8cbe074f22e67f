#include "app/config/removed_keys.h"

#include <algorithm>
#include <iterator>

namespace bert {
namespace {

constexpr RemovedKey kRemoved[] = {
    {"/amp/backoff_factor", "the loss scale is halved, as PyTorch does", "0.5"},
    {"/amp/growth_factor", "the loss scale is doubled, as PyTorch does", "2.0"},
    {"/amp/growth_interval", "the loss scale grows after 2000 clean steps, as PyTorch's", "2000"},
    {"/amp/min_scale", "a run whose loss scale falls below 1 stops", "1.0"},
    {"/data/log_sample_ids", "add \"samples\" to report", nullptr},
    {"/data/tag_column", "the last column has the labels", "-1"},
    {"/data/word_column", "the first column has the words", "0"},
    {"/distillation/relation_heads", "the heads of the student divide query, key and value", "0"},
    {"/distillation/trust_teacher", "trust_initial_checkpoint is for the teacher, too", "false"},
    {"/distillation/value_weight", "attention_weight is for both differences", "1.0"},
    {"/distributed/bucket_mb", "gradients are reduced in parts of 25 MiB, as in PyTorch", nullptr},
    {"/distributed/debug", "set the environment variable TORCH_DISTRIBUTED_DEBUG=DETAIL", nullptr},
    {"/initial_parts", "all parts of initial_checkpoint that the run has are loaded", "\"all\""},
    {"/optimizer/decoupled_weight_decay", "optimizer.type adam adds the decay to the gradient", "true"},
    {"/optimizer/eps_inside_sqrt", "eps is added to the root", "false"},
    {"/optimizer/grad_averaging", "the first moment always adds (1 - beta1) g", "true"},
    {"/optimizer/max_trust_ratio", "the trust ratio has no bounds", "0.0"},
    {"/optimizer/min_trust_ratio", "the trust ratio has no bounds", "0.0"},
    {"/report_histograms", "add \"histograms\" to report", nullptr},
    {"/report_layers", "add \"layers\" to report", nullptr},
    {"/report_textfile", "report_port has the numbers for Prometheus", nullptr},
    {"/sweep", "give the command once for each value, with a run_directory of its own", nullptr},
};

}  // namespace

bool RemovedKey::keeps_meaning(const JsonNode& value) const {
  if (meaning == nullptr) return true;
  JsonProblems problems;
  const JsonNode kept = parse_json_word(meaning, std::make_shared<JsonSource>(), pointer, problems);
  const auto is_number = [](const JsonNode& node) {
    return node.kind == JsonNode::Kind::kInteger || node.kind == JsonNode::Kind::kNumber;
  };
  if (is_number(kept)) return is_number(value) && value.number == kept.number;
  return value.kind == kept.kind && value.text == kept.text;
}

const RemovedKey* removed_key(const std::string& pointer) {
  const auto* const found = std::find_if(std::begin(kRemoved), std::end(kRemoved),
                                         [&](const RemovedKey& key) { return key.pointer == pointer; });
  return found == std::end(kRemoved) ? nullptr : found;
}

}  // namespace bert
