#include "app/report/sink.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// Calls visit(path, value) for every value that is not an object.
template <class Visit>
void visit_leaves(const Json& object, const std::string& prefix, char separator, const Visit& visit) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix.empty() ? key : prefix + separator + key;
    if (value.is_object()) {
      visit_leaves(value, name, separator, visit);
    } else {
      visit(name, value);
    }
  }
}

}  // namespace

void visit_numbers(const Json& object, char separator,
                   const std::function<void(const std::string& name, double value)>& visit) {
  visit_leaves(object, "", separator, [&](const std::string& name, const Json& value) {
    if (value.is_boolean()) visit(name, value.get<bool>() ? 1 : 0);
    if (value.is_number()) visit(name, value.get<double>());
  });
}

Json figures_of(const Json& line) {
  Json figures = line;
  for (const char* key : {"step", "steps", "time", "elapsed_seconds"}) figures.erase(key);
  return figures;
}

Json flat(const Json& object) {
  Json result = Json::object();
  visit_leaves(object, "", '.', [&](const std::string& name, const Json& value) { result[name] = value; });
  return result;
}

}  // namespace bert
