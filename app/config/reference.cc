#include "app/config/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "app/config/fields.h"
#include "app/config/fields_impl.h"
#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"

namespace bert {
namespace {

/// `text` as the content of a cell.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '<') result += '\\';
    result += c;
  }
  return result;
}

std::string dotted(std::string pointer) {
  pointer.erase(0, 1);
  std::replace(pointer.begin(), pointer.end(), '/', '.');
  return pointer;
}

struct TypeOf {
  const ConfigField& field;
  std::string operator()(const bool*) const { return "boolean"; }
  std::string operator()(const std::optional<bool>*) const { return "boolean or `null`"; }
  std::string operator()(const int64_t*) const { return field.may_be_auto ? "integer or `auto`" : "integer"; }
  std::string operator()(const double*) const { return "number"; }
  std::string operator()(const std::string*) const { return field.is_path ? "path" : "string"; }
  std::string operator()(const std::vector<std::string>*) const { return field.is_path ? "paths" : "strings"; }
  std::string operator()(const EnumValue& /*value*/) const { return "string"; }
  std::string operator()(const ConfigList&) const { return "objects"; }
};

std::string type_of(const ConfigField& field) { return std::visit(TypeOf{field}, field.value); }

struct RangeOf {
  const ConfigField& field;
  std::string operator()(const int64_t*) const {
    if (!field.ranged) return "";
    if (field.integer_high == INT64_MAX) return fmt::format("from {}", field.integer_low);
    return fmt::format("{} to {}", field.integer_low, field.integer_high);
  }
  std::string operator()(const double*) const {
    return field.ranged ? fmt::format("{} to {}", field.low, field.high) : "";
  }
  std::string operator()(const std::string*) const { return words(); }
  std::string operator()(const EnumValue& /*value*/) const { return words(); }
  std::string operator()(const bool*) const { return ""; }
  std::string operator()(const std::optional<bool>*) const { return ""; }
  std::string operator()(const std::vector<std::string>*) const { return words(); }
  std::string operator()(const ConfigList&) const { return ""; }
  [[nodiscard]] std::string words() const {
    std::string list;
    for (const std::string& word : field.allowed) list += (list.empty() ? "`" : ", `") + word + "`";
    return list;
  }
};

std::string range_of(const ConfigField& field) { return std::visit(RangeOf{field}, field.value); }

/// The fields by pointer, each with its default as JSON.
struct Kind {
  std::vector<ConfigField> fields;
  std::map<std::string, std::string> defaults;

  explicit Kind(const ConfigFields& of) : fields(of.leaves) {
    for (const ConfigField& field : fields) defaults[field.pointer] = field_value(field);
  }
  [[nodiscard]] const ConfigField* find(const std::string& pointer) const {
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const ConfigField& field) { return field.pointer == pointer; });
    return found == fields.end() ? nullptr : &*found;
  }
};

/// True if both kinds of runs have the field, with one meaning.
bool shared(const ConfigField& field, const Kind& other) {
  const ConfigField* const twin = other.find(field.pointer);
  return twin != nullptr && twin->help == field.help && range_of(*twin) == range_of(field) &&
         twin->may_change == field.may_change;
}

/// A default for a cell: JSON, or nothing for an empty string.
std::string shown(const std::string& value) { return value == "\"\"" ? "" : "`" + value + "`"; }

void add_row(std::string& out, const ConfigField& field, const std::string& default_value) {
  const std::string range = range_of(field);
  out += fmt::format("| `{}` | {}{} | {} | {} | {} |\n", dotted(field.pointer), type_of(field),
                     range.empty() ? "" : ": " + range, default_value, cell(field.help),
                     field.may_change ? "may change" : "fixed");
  if (const auto* list = std::get_if<ConfigList>(&field.value)) {
    for (ConfigField member : list->default_element().leaves) {
      const std::string value = field_value(member);
      member.pointer = field.pointer + "[]" + "/" + member.pointer.substr(1);
      member.may_change = field.may_change;
      add_row(out, member, shown(value));
    }
  }
}

void add_table(std::string& out, const std::string& title, const std::vector<ConfigField>& fields, const Kind& kind,
               const Kind* other) {
  out +=
      fmt::format("## {}\n\n| key | type and range | default | meaning | on resume |\n|---|---|---|---|---|\n", title);
  for (const ConfigField& field : fields) {
    std::string value = shown(kind.defaults.at(field.pointer));
    if (other != nullptr && other->defaults.at(field.pointer) != kind.defaults.at(field.pointer))
      value += ", fine-tuning " + shown(other->defaults.at(field.pointer));
    add_row(out, field, value);
  }
  out += "\n";
}

}  // namespace

std::string config_reference() {
  PretrainConfig pretrain_config;
  FinetuneConfig finetune_config;
  const Kind pretrain(fields_of(pretrain_config)), finetune(fields_of(finetune_config));
  std::vector<ConfigField> both, of_pretrain, of_finetune;
  for (const ConfigField& field : pretrain.fields) (shared(field, finetune) ? both : of_pretrain).push_back(field);
  for (const ConfigField& field : finetune.fields) {
    if (!shared(field, pretrain)) of_finetune.push_back(field);
  }
  std::string out =
      "# Keys of a configuration\n\n`bert config reference` prints this page; [README.md](README.md) explains "
      "configurations.\n\n";
  add_table(out, "Keys of every run", both, pretrain, &finetune);
  add_table(out, "Keys of pre-training", of_pretrain, pretrain, nullptr);
  add_table(out, "Keys of fine-tuning", of_finetune, finetune, nullptr);
  out.pop_back();
  return out;
}

}  // namespace bert
