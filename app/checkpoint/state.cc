#include "app/checkpoint/state.h"

#include <cmath>
#include <limits>

#include "app/config/model_rules_json.h"
#include "app/parse/bounded_json.h"
#include "data/io/error.h"

namespace bert {
namespace {

using nlohmann::json;

constexpr int64_t kStateVersion = 1;

class Writer {
 public:
  explicit Writer(json& object) : object_(object) {}

  template <class T>
  void field(const char* key, const T& value) {
    object_[key] = to_json(value);
  }
  /// A field that is left out if it is empty.
  template <class T>
  void optional(const char* key, const T& value) {
    if (!value.empty()) field(key, value);
  }
  void optional(const char* key, int64_t value) {
    if (value != 0) field(key, value);
  }
  /// A field that older checkpoints lack.
  template <class T>
  void later(const char* key, const T& value) {
    field(key, value);
  }
  /// A text that is itself a JSON object; {} for an empty text.
  void nested_text(const char* key, const std::string& text) {
    object_[key] = text.empty() ? json::object() : parse_bounded_json(text, key);
  }
  template <class Fields>
  void object(const char* key, const Fields& fields) {
    Writer inner(object_[key]);
    fields(inner);
  }

 private:
  template <class T>
  static json to_json(const T& value) {
    return value;
  }
  static json to_json(const Objective& objective) { return name_of_value(objective); }
  static json to_json(const RunClock& clock) {
    return {{"seconds", clock.seconds},
            {"first_step", clock.first_step},
            {"warmup_end", clock.warmup_end},
            {"decay_begin", clock.decay_begin},
            {"decay_end", clock.decay_end}};
  }
  static json to_json(const std::map<std::string, DataIdentity>& data) {
    json result;
    for (const auto& [key, identity] : data) {
      result[key] = {{"content_checksum", identity.content_checksum}, {"examples", identity.examples}};
    }
    return result;
  }

  json& object_;
};

class Reader {
 public:
  Reader(const json& object, const std::string& file) : object_(object), file_(file) {}

  void field(const char* key, int64_t& value) { value = integer_member(object_, key, file_); }
  void field(const char* key, double& value) { value = number_member(object_, key, file_); }
  void field(const char* key, std::string& value) { value = string_member(object_, key, file_); }
  void field(const char* key, Objective& objective) {
    objective = parse_objective(string_member(object_, key, file_), file_ + ": \"" + key + "\"");
  }
  void field(const char* key, std::vector<std::string>& list) {
    for (const json& item : member(object_, key, json::value_t::array, file_)) {
      if (!item.is_string()) throw DataError(file_ + ": \"" + key + "\": want a list of strings");
      list.push_back(item.get<std::string>());
    }
  }
  void field(const char* key, std::map<std::string, double>& numbers) {
    const json& object = member(object_, key, json::value_t::object, file_);
    for (const auto& [name, value] : object.items()) {
      numbers[name] =
          value.is_null() ? std::numeric_limits<double>::quiet_NaN() : number_member(object, name.c_str(), file_);
    }
  }
  void field(const char* key, RunClock& clock) {
    const json& object = member(object_, key, json::value_t::object, file_);
    clock = {.seconds = number_member(object, "seconds", file_),
             .first_step = integer_member(object, "first_step", file_),
             .warmup_end = object.contains("warmup_end") ? integer_member(object, "warmup_end", file_) : 0,
             .decay_begin = integer_member(object, "decay_begin", file_),
             .decay_end = integer_member(object, "decay_end", file_)};
  }
  void field(const char* key, std::map<std::string, DataIdentity>& data) {
    const json& object = member(object_, key, json::value_t::object, file_);
    for (const auto& item : object.items()) {
      const json& identity = member(object, item.key().c_str(), json::value_t::object, file_);
      data[item.key()] = {.content_checksum = string_member(identity, "content_checksum", file_),
                          .examples = integer_member(identity, "examples", file_)};
    }
  }
  template <class T>
  void optional(const char* key, T& value) {
    if (object_.contains(key)) field(key, value);
  }
  template <class T>
  void later(const char* key, T& value) {
    optional(key, value);
  }
  void nested_text(const char* key, std::string& text) {
    const json& object = member(object_, key, json::value_t::object, file_);
    if (!object.empty()) text = object.dump(2) + "\n";
  }
  template <class Fields>
  void object(const char* key, const Fields& fields) {
    Reader inner(member(object_, key, json::value_t::object, file_), file_);
    fields(inner);
  }

 private:
  const json& object_;
  const std::string& file_;
};

/// The fields of state.json beside its format version, for writing and reading.
template <class Archive, class State>
void visit_fields(Archive& archive, State& state) {
  archive.field("step", state.step);
  archive.object("sampler", [&](Archive& sampler) {
    sampler.field("seed", state.sampler_seed);
    sampler.field("consumed_samples", state.consumed_samples);
    sampler.later("consumed_steps", state.consumed_steps);
  });
  archive.object("scaler", [&](Archive& scaler) {
    scaler.field("loss_scale", state.loss_scale);
    scaler.field("growth_tracker", state.growth_tracker);
    scaler.later("consecutive_skips", state.consecutive_skips);
  });
  archive.later("objective", state.model.objective);
  archive.optional("task", state.model.task);
  archive.optional("labels", state.model.labels);
  archive.nested_text("config", state.config);
  archive.optional("config_sha256", state.config_sha256);
  archive.optional("data", state.data);
  archive.optional("clock", state.clock);
  archive.optional("evaluation_due", state.evaluation_due);
  archive.field("vocabulary", state.model.vocabulary);
  archive.field("metrics", state.metrics);
}

}  // namespace

Objective parse_objective(const std::string& name, const std::string& place) {
  const auto known = value_named<Objective>(name);
  if (!known) throw DataError(place + ": want nsp, mlm or sop, got " + name);
  return *known;
}

std::string write_checkpoint_state(const CheckpointState& state) {
  json document = {{"format_version", kStateVersion}};
  Writer writer(document);
  visit_fields(writer, state);
  write_rules(state.model, [&](const char* key, const nlohmann::ordered_json& value) { document[key] = value; });
  try {
    return document.dump(1) + "\n";
  } catch (const json::type_error& error) {
    throw DataError(std::string("state.json: a token of the vocabulary is not UTF-8: ") + error.what());
  }
}

CheckpointState parse_checkpoint_state(const std::string& text, const std::string& file) {
  const json document = parse_bounded_json(text, file);
  if (!document.is_object()) throw DataError(file + ": want an object {...}");
  if (const int64_t version = integer_member(document, "format_version", file); version != kStateVersion) {
    throw DataError(file + ": format version " + std::to_string(version) + ", this program knows " +
                    std::to_string(kStateVersion));
  }
  CheckpointState state;
  Reader reader(document, file);
  visit_fields(reader, state);
  read_rules(document, file, state.model);
  return state;
}

}  // namespace bert
