#include "app/checkpoint_state.h"

#include <cmath>
#include <limits>

#include "app/bounded_json.h"
#include "data/error.h"

namespace bert {
namespace {

using nlohmann::json;

constexpr int64_t kFormatVersion = 1;

}  // namespace

std::string write_checkpoint_state(const CheckpointState& state) {
  json document = {{"format_version", kFormatVersion},
                   {"step", state.step},
                   {"sampler", {{"seed", state.sampler_seed}, {"consumed_samples", state.consumed_samples}}},
                   {"scaler", {{"loss_scale", state.loss_scale}, {"growth_tracker", state.growth_tracker}}},
                   {"rng", state.rng},
                   {"vocabulary", state.vocabulary},
                   {"do_lower_case", state.do_lower_case},
                   {"metrics", state.metrics}};
  if (!state.config_sha256.empty()) document["config_sha256"] = state.config_sha256;
  for (const auto& [key, identity] : state.data) {
    document["data"][key] = {{"content_checksum", identity.content_checksum}, {"examples", identity.examples}};
  }
  document["config"] = state.config.empty() ? json::object() : parse_bounded_json(state.config, "the configuration");
  try {
    return document.dump(1) + "\n";
  } catch (const json::type_error& error) {
    throw DataError(std::string("state.json: a token of the vocabulary is not UTF-8: ") + error.what());
  }
}

CheckpointState parse_checkpoint_state(const std::string& text, const std::string& file) {
  const json document = parse_bounded_json(text, file);
  if (!document.is_object()) throw DataError(file + ": want an object {...}");
  if (const int64_t version = integer_member(document, "format_version", file); version != kFormatVersion) {
    throw DataError(file + ": format version " + std::to_string(version) + ", this program knows " +
                    std::to_string(kFormatVersion));
  }
  CheckpointState state;
  state.step = integer_member(document, "step", file);
  const json& sampler = member(document, "sampler", json::value_t::object, file);
  state.sampler_seed = integer_member(sampler, "seed", file);
  state.consumed_samples = integer_member(sampler, "consumed_samples", file);
  const json& scaler = member(document, "scaler", json::value_t::object, file);
  state.loss_scale = number_member(scaler, "loss_scale", file);
  state.growth_tracker = integer_member(scaler, "growth_tracker", file);
  const json& rng = member(document, "rng", json::value_t::object, file);
  for (const auto& [name, value] : rng.items()) state.rng[name] = string_member(rng, name.c_str(), file);
  const json& config = member(document, "config", json::value_t::object, file);
  if (!config.empty()) state.config = config.dump(2) + "\n";
  if (document.contains("config_sha256")) state.config_sha256 = string_member(document, "config_sha256", file);
  if (document.contains("data")) {
    const json& data = member(document, "data", json::value_t::object, file);
    for (const auto& item : data.items()) {
      const json& identity = member(data, item.key().c_str(), json::value_t::object, file);
      state.data[item.key()] = {.content_checksum = string_member(identity, "content_checksum", file),
                                .examples = integer_member(identity, "examples", file)};
    }
  }
  for (const json& token : member(document, "vocabulary", json::value_t::array, file)) {
    if (!token.is_string()) throw DataError(file + ": \"vocabulary\": want a list of strings");
    state.vocabulary.push_back(token.get<std::string>());
  }
  state.do_lower_case = boolean_member(document, "do_lower_case", file);
  const json& metrics = member(document, "metrics", json::value_t::object, file);
  for (const auto& [name, value] : metrics.items()) {
    state.metrics[name] =
        value.is_null() ? std::numeric_limits<double>::quiet_NaN() : number_member(metrics, name.c_str(), file);
  }
  return state;
}

}  // namespace bert
