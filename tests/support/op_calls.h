// Records the LibTorch operators that a piece of code calls.
#pragma once

#include <ATen/record_function.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

namespace bert::testing {

/// Names of the dispatcher's operators that `body` calls, such as "aten::mm".
inline std::set<std::string> calls_of(const std::function<void()>& body) {
  static std::set<std::string> names;
  names.clear();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) {
                                                   names.insert(call.name());
                                                   return std::unique_ptr<at::ObserverContext>();
                                                 }).scopes({at::RecordScope::FUNCTION}));
  body();
  at::removeCallback(handle);
  return names;
}

}  // namespace bert::testing
