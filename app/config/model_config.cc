#include "app/config/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "app/config/fields.h"
#include "app/config/fields_impl.h"
#include "app/parse/json_tree.h"

namespace bert {

void read_model_config(const std::string& text, const std::string& name, BertConfig& config) {
  auto source = std::make_shared<JsonSource>();
  source->name = name;
  JsonProblems problems;
  JsonNode tree = parse_json(text, source, problems);
  ConfigReport report;
  report.impl().take(std::move(problems));
  const ConfigFields fields = fields_of(config);
  std::erase_if(tree.members, [&](const JsonMember& member) {
    return std::none_of(fields.leaves.begin(), fields.leaves.end(),
                        [&](const ConfigField& field) { return field.pointer == "/" + member.key; });
  });
  bind_config(fields, tree, report);
  BertConfig::check_relations(
      config, [&](const char* field, int64_t value, const char* want, const char* other, int64_t other_value) {
        report.add(fmt::format("/{}", field), fmt::format("want {} {} {}, got {}", want, other, other_value, value),
                   {fmt::format("/{}", other)});
      });
  report.throw_if_any();
}

}  // namespace bert
