#include "app/config/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_set>

#include "app/config/fields_impl.h"
#include "app/config/removed_keys.h"
#include "app/parse/bounded_json.h"
#include "app/parse/json_tree.h"
#include "app/parse/nearest_word.h"
#include "app/system/errors.h"

namespace bert {
namespace {

constexpr const char* kAutoWord = "auto";

std::string quoted_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string last_part(const std::string& pointer) { return pointer.substr(pointer.rfind('/') + 1); }

/// The form of a JSON pointer on a command line: optimizer.lr for /optimizer/lr.
std::string dotted(const std::string& pointer) {
  std::string text = pointer.substr(1);
  std::replace(text.begin(), text.end(), '/', '.');
  return text;
}

std::string shown(double value) { return fmt::format("{}", value); }

/// Sets the fields from a JSON tree and adds every value that does not fit to the report.
class Binder {
 public:
  Binder(const ConfigFields& fields, ConfigReport::Impl& report) : report_(report) {
    for (const ConfigField& field : fields.leaves) leaves_[field.pointer] = &field;
    for (const auto& [pointer, help] : fields.objects) objects_.insert(pointer);
  }

  void bind(const JsonNode& object, const std::string& prefix) {
    std::unordered_set<std::string_view> met;
    for (const JsonMember& member : object.members) {
      if (!met.insert(member.key).second) continue;  // the parser has reported the duplicate
      const std::string pointer = prefix + "/" + pointer_part(member.key);
      const JsonPlace& place = member.value.place;
      if (objects_.count(pointer) != 0) {
        report_.places[pointer] = place;
        if (member.value.kind != JsonNode::Kind::kObject) {
          report_.add(place, pointer, "want an object {...}, got " + member.value.got());
        } else {
          bind(member.value, pointer);
        }
      } else if (const auto leaf = leaves_.find(pointer); leaf != leaves_.end()) {
        report_.places[pointer] = place;
        std::visit([&](const auto& target) { bind_value(target, *leaf->second, member.value, pointer); },
                   leaf->second->value);
      } else if (const RemovedKey* removed = removed_key(pointer); removed == nullptr) {
        report_.add(member.place, pointer, unknown(member.key, prefix));
      } else if (!place.source->saved || !removed->keeps_meaning(member.value)) {
        report_.add(member.place, pointer, fmt::format("is no key any more: {}", removed->instead));
      }
    }
  }

 private:
  template <class T>
  void bind_value(T* target, const ConfigField& field, const JsonNode& node, const std::string& pointer) {
    bind_leaf(*target, field, node, pointer);
  }
  void bind_value(const EnumValue& target, const ConfigField& field, const JsonNode& node, const std::string& pointer) {
    bind_leaf(target, field, node, pointer);
  }
  void bind_value(const ConfigList& list, const ConfigField& /*field*/, const JsonNode& node,
                  const std::string& pointer) {
    list.clear();
    if (node.kind != JsonNode::Kind::kArray) {
      report_.add(node.place, pointer, "want a list of objects [{...}], got " + node.got());
      return;
    }
    const size_t problems = report_.problems.size();
    for (size_t i = 0; i < node.items.size(); ++i) {
      const std::string place = fmt::format("{}/{}", pointer, i);
      const ConfigFields element = list.append();
      if (node.items[i].kind == JsonNode::Kind::kObject) {
        Binder(element, report_).bind(node.items[i], place);
      } else {
        report_.add(node.items[i].place, place, "want an object {...}, got " + node.items[i].got());
      }
    }
    if (report_.problems.size() > problems) report_.bad.insert(pointer);
  }

  template <class T>
  void bind_leaf(T& target, const ConfigField& field, const JsonNode& node, const std::string& pointer) {
    if (const std::string wrong = set(target, field, node); !wrong.empty()) report_.add(node.place, pointer, wrong);
  }
  void bind_leaf(std::vector<std::string>& target, const ConfigField& field, const JsonNode& node,
                 const std::string& pointer) {
    const size_t problems = report_.problems.size();
    std::vector<std::string> values;
    if (node.kind == JsonNode::Kind::kArray) {
      values.resize(node.items.size());
      for (size_t i = 0; i < values.size(); ++i)
        bind_leaf(values[i], field, node.items[i], fmt::format("{}/{}", pointer, i));
    } else if (const std::string wrong = set(values.emplace_back(), field, node); !wrong.empty()) {
      // One string stands for a list of one.
      report_.add(node.place, pointer, field.allowed.empty() ? "want a list of strings, got " + node.got() : wrong);
    }
    if (report_.problems.size() > problems) report_.bad.insert(pointer);
    target = std::move(values);
  }

  std::string unknown(const std::string& key, const std::string& prefix) const {
    std::vector<std::string> siblings;
    std::string elsewhere;
    const auto consider = [&](const std::string& pointer) {
      if (pointer.substr(0, pointer.rfind('/')) == prefix) siblings.push_back(last_part(pointer));
      if (last_part(pointer) == key) elsewhere = dotted(pointer);
    };
    for (const auto& [pointer, field] : leaves_) consider(pointer);
    for (const std::string& pointer : objects_) consider(pointer);
    std::sort(siblings.begin(), siblings.end());
    if (const std::string near = nearest_word(key, siblings); !near.empty())
      return "unknown key; did you mean \"" + near + "\"?";
    if (!elsewhere.empty()) return "unknown key; did you mean " + elsewhere + "?";
    return "unknown key; known here: " + quoted_list(siblings);
  }

  static std::string set(bool& target, const ConfigField&, const JsonNode& node) {
    if (node.kind != JsonNode::Kind::kBoolean) return "want true or false, got " + node.got();
    target = node.integer != 0;
    return "";
  }
  static std::string set(std::optional<bool>& target, const ConfigField&, const JsonNode& node) {
    const bool given = node.kind == JsonNode::Kind::kBoolean;
    if (!given && node.kind != JsonNode::Kind::kNull) return "want true, false or null, got " + node.got();
    target = given ? std::optional<bool>(node.integer != 0) : std::nullopt;
    return "";
  }
  static std::string set(int64_t& target, const ConfigField& field, const JsonNode& node) {
    if (field.may_be_auto && node.text == kAutoWord &&
        (node.kind == JsonNode::Kind::kString || node.place.source->words)) {
      target = 0;
      return "";
    }
    const std::string want = std::string("want ") + (field.may_be_auto ? "auto or " : "") +
                             (field.integer_high == INT64_MAX
                                  ? fmt::format("an integer of at least {}", field.integer_low)
                                  : fmt::format("an integer in [{}, {}]", field.integer_low, field.integer_high));
    if (node.kind == JsonNode::Kind::kInteger && !node.fits)
      return want + ", got " + node.got() + ", which does not fit 64 bits";
    if (node.kind != JsonNode::Kind::kInteger || node.integer < field.integer_low ||
        node.integer > field.integer_high) {
      return want + ", got " + node.got();
    }
    target = node.integer;
    return "";
  }
  static std::string set(double& target, const ConfigField& field, const JsonNode& node) {
    const std::string want =
        field.ranged ? "want a number in [" + shown(field.low) + ", " + shown(field.high) + "]" : "want a number";
    const bool number = node.kind == JsonNode::Kind::kInteger || node.kind == JsonNode::Kind::kNumber;
    if (!number || !std::isfinite(node.number)) return want + ", got " + node.got();
    if (node.kind == JsonNode::Kind::kNumber && !node.fits)
      return want + ", got " + node.got() + ", which does not fit a double";
    if (field.ranged && (node.number < field.low || node.number > field.high)) return want + ", got " + node.got();
    target = node.number;
    return "";
  }
  static std::string set(const EnumValue& target, const ConfigField& field, const JsonNode& node) {
    std::string word;
    std::string wrong = set(word, field, node);
    if (wrong.empty()) {
      target.set(
          static_cast<size_t>(std::find(field.allowed.begin(), field.allowed.end(), word) - field.allowed.begin()));
    }
    return wrong;
  }
  static std::string set(std::string& target, const ConfigField& field, const JsonNode& node) {
    const bool word =
        node.place.source->words && node.kind != JsonNode::Kind::kArray && node.kind != JsonNode::Kind::kObject;
    if (node.kind != JsonNode::Kind::kString && !word) {
      return (field.allowed.empty() ? "want a string" : "want one of " + quoted_list(field.allowed)) + ", got " +
             node.got();
    }
    if (!field.allowed.empty() &&
        std::find(field.allowed.begin(), field.allowed.end(), node.text) == field.allowed.end()) {
      const std::string near = nearest_word(node.text, field.allowed);
      return "want one of " + quoted_list(field.allowed) + ", got " + node.got() +
             (near.empty() ? "" : "; did you mean \"" + near + "\"?");
    }
    if (node.text.find('\0') != std::string::npos) return "want a string without NUL characters";
    target = field.is_path ? absolute(node.text, node) : node.text;
    return "";
  }

  static std::string absolute(const std::string& path, const JsonNode& node) {
    const std::filesystem::path& directory = node.place.source->directory;
    if (path.empty() || directory.empty()) return path;
    return without_dots(directory / path).string();
  }

  std::map<std::string, const ConfigField*> leaves_;
  std::set<std::string> objects_;
  ConfigReport::Impl& report_;
};

nlohmann::json tree_of(const ConfigFields& fields, size_t prefix);

struct ValueOf {
  nlohmann::json operator()(const std::optional<bool>* value) const {
    return *value ? nlohmann::json(**value) : nlohmann::json();
  }
  nlohmann::json operator()(const int64_t* value) const {
    if (field.may_be_auto && *value == 0) return kAutoWord;
    return *value;
  }
  template <class T>
  nlohmann::json operator()(const T* value) const {
    return *value;
  }
  nlohmann::json operator()(const EnumValue& value) const { return field.allowed[value.get()]; }
  nlohmann::json operator()(const ConfigList& list) const {
    nlohmann::json values = nlohmann::json::array();
    const std::vector<ConfigFields> elements = list.elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      values.push_back(tree_of(elements[i], field.pointer.size() + 1 + std::to_string(i).size()));
    }
    return values;
  }
  const ConfigField& field;
};

nlohmann::json value_of(const ConfigField& field) { return std::visit(ValueOf{field}, field.value); }

/// The values of the fields, at their pointers without the first `prefix` characters.
nlohmann::json tree_of(const ConfigFields& fields, size_t prefix) {
  nlohmann::json tree = nlohmann::json::object();
  const auto at = [&](const std::string& pointer) -> nlohmann::json& {
    return tree[nlohmann::json::json_pointer(pointer.substr(prefix))];
  };
  for (const auto& [pointer, help] : fields.objects) at(pointer) = nlohmann::json::object();
  for (const ConfigField& field : fields.leaves) at(field.pointer) = value_of(field);
  return tree;
}

nlohmann::json leaf_schema(const ConfigField& field);

nlohmann::json object_schema(const std::string& help) {
  using nlohmann::json;
  json schema = {{"type", "object"}, {"additionalProperties", false}, {"properties", json::object()}};
  if (!help.empty()) schema["description"] = help;
  return schema;
}

struct SchemaOf {
  const ConfigField& field;
  nlohmann::json operator()(const bool*) const { return {{"type", "boolean"}}; }
  nlohmann::json operator()(const std::optional<bool>*) const { return {{"type", {"boolean", "null"}}}; }
  nlohmann::json operator()(const int64_t*) const {
    nlohmann::json schema = {{"type", "integer"}};
    if (field.ranged) schema["minimum"] = field.integer_low;
    if (field.ranged && field.integer_high != INT64_MAX) schema["maximum"] = field.integer_high;
    if (field.may_be_auto) return {{"anyOf", {schema, {{"const", kAutoWord}}}}};
    return schema;
  }
  nlohmann::json operator()(const double*) const {
    nlohmann::json schema = {{"type", "number"}};
    if (field.ranged) schema.update({{"minimum", field.low}, {"maximum", field.high}});
    return schema;
  }
  nlohmann::json operator()(const std::string*) const {
    nlohmann::json schema = {{"type", "string"}};
    if (!field.allowed.empty()) schema["enum"] = field.allowed;
    return schema;
  }
  nlohmann::json operator()(const EnumValue& /*value*/) const { return {{"type", "string"}, {"enum", field.allowed}}; }
  nlohmann::json operator()(const std::vector<std::string>*) const {
    nlohmann::json items = {{"type", "string"}};
    if (!field.allowed.empty()) items["enum"] = field.allowed;
    if (field.allowed.empty()) return {{"type", {"array", "string"}}, {"items", items}};
    const nlohmann::json list = {{"type", "array"}, {"items", items}};
    return {{"anyOf", nlohmann::json::array({list, items})}};
  }
  nlohmann::json operator()(const ConfigList& list) const {
    nlohmann::json items = object_schema("");
    for (const ConfigField& member : list.default_element().leaves) {
      items["properties"][last_part(member.pointer)] = leaf_schema(member);
    }
    return {{"type", "array"}, {"items", items}};
  }
};

nlohmann::json leaf_schema(const ConfigField& field) {
  nlohmann::json leaf = std::visit(SchemaOf{field}, field.value);
  leaf["description"] = field.help + (field.may_change ? " (may change on resume)" : "");
  leaf["default"] = value_of(field);
  return leaf;
}

}  // namespace

ConfigReport::ConfigReport() : impl_(std::make_unique<Impl>()) {}
ConfigReport::~ConfigReport() = default;

void ConfigReport::Impl::add(const JsonPlace& place, const std::string& pointer, const std::string& message) {
  problems.push_back({place.str(), pointer, message});
  order.push_back({place.source ? place.source->name : "", place.line, place.column});
  bad.insert(pointer);
}

void ConfigReport::Impl::take(JsonProblems found) {
  incomplete = incomplete || found.incomplete;
  for (ConfigProblem& problem : found.list) {
    bad.insert(problem.pointer);
    order.emplace_back("", 0, 0);
    problems.push_back(std::move(problem));
  }
}

void ConfigReport::add(const std::string& pointer, const std::string& message, const std::vector<std::string>& unless) {
  if (impl_->incomplete || !clean(pointer) ||
      !std::all_of(unless.begin(), unless.end(), [&](const std::string& other) { return clean(other); }))
    return;
  // The place of the value; for a default value, the place of the first related field that a source has set.
  std::vector<std::string> related = unless;
  related.insert(related.begin(), pointer);
  const auto given = std::find_if(related.begin(), related.end(),
                                  [&](const std::string& each) { return impl_->places.contains(each); });
  impl_->add(given == related.end() ? impl_->root : impl_->places.at(*given), pointer, message);
}

bool ConfigReport::given(const std::string& pointer) const { return impl_->places.contains(pointer); }

bool ConfigReport::clean(const std::string& pointer) const { return impl_->bad.count(pointer) == 0; }

void ConfigReport::throw_if_any() const {
  if (impl_->problems.empty()) return;
  std::vector<size_t> sorted(impl_->problems.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) { return impl_->order[a] < impl_->order[b]; });
  std::vector<ConfigProblem> problems;
  problems.reserve(sorted.size());
  for (const size_t i : sorted) problems.push_back(impl_->problems[i]);
  throw ConfigError(std::move(problems));
}

void bind_config(const ConfigFields& fields, const JsonNode& tree, ConfigReport& report) {
  report.impl().root = tree.place;
  Binder(fields, report.impl()).bind(tree, "");
}

std::string field_value(const ConfigField& field) { return as_text(value_of(field)); }

std::string write_config(const ConfigFields& fields) {
  return tree_of(fields, 0).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string config_schema(const ConfigFields& fields, const std::string& title) {
  using nlohmann::json;
  json schema = object_schema(title);
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = title;
  schema["properties"]["$schema"] = {{"type", "string"},
                                     {"description", "the JSON Schema that an editor checks this file with; ignored"}};
  schema["properties"]["extends"] = {{"type", "string"},
                                     {"description", "a configuration that this one builds on, relative to this file"}};
  const auto at =
      [&](const std::string& pointer) -> json& {  // "/optimizer/lr" is at properties.optimizer.properties.lr
    json* here = &schema;
    for (size_t begin = 1; begin <= pointer.size();) {
      const size_t end = std::min(pointer.find('/', begin), pointer.size());
      here = &(*here)["properties"][pointer.substr(begin, end - begin)];
      begin = end + 1;
    }
    return *here;
  };
  for (const auto& [pointer, help] : fields.objects) at(pointer) = object_schema(help);
  for (const ConfigField& field : fields.leaves) at(field.pointer) = leaf_schema(field);
  return schema.dump(2) + "\n";
}

ConfigFields fixed_fields(ConfigFields fields) {
  std::erase_if(fields.leaves, [](const ConfigField& field) { return field.may_change; });
  return fields;
}

std::vector<ConfigDifference> compare_configs(const ConfigFields& before, const ConfigFields& after) {
  std::vector<ConfigDifference> differences;
  for (size_t i = 0; i < before.leaves.size(); ++i) {
    // The values are compared as JSON text: bytes of a path that are not UTF-8 do not survive in a file.
    const std::string a = as_text(value_of(before.leaves[i])), b = as_text(value_of(after.leaves[i]));
    if (a != b) differences.push_back({before.leaves[i].pointer, a, b});
  }
  return differences;
}

}  // namespace bert
