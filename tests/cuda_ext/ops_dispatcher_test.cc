// Every operator of the schema as the dispatcher calls it for Python and TorchScript, backward operators included:
// every argument is spoilt in every way, below autograd, autocast, inference mode and none of them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "optim/amp.h"
#include "tests/support/ops_testing.h"

namespace bert {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using c10::IValue;
using torch::jit::Stack;

constexpr int64_t kCallTokens = 4, kCallWords = 9, kClasses = 5, kSite = 2;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

c10::OperatorHandle find(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("bert::" + name).c_str(), "");
}

Stack call(const std::string& name, Stack arguments) {
  find(name).callBoxed(&arguments);
  return arguments;
}

/// A valid call of each operator. Each backward gets the results of its forward.
std::map<std::string, Stack> valid_calls(at::ScalarType type, int64_t hidden, double p = 0.1) {
  const auto floats = [&](at::IntArrayRef sizes) { return randn(sizes, 1).to(type); };
  const Tensor x = floats({kCallTokens, hidden}), vector = floats({hidden}), weight = floats({hidden, hidden}),
               word = floats({kCallWords, hidden}), types = floats({2, hidden}),
               qkv = floats({kCallTokens, 3 * hidden}), scores = floats({2, 2, kCallTokens, kCallTokens}),
               keys = keys_of(kCallTokens), ids = integers(2, kCallTokens, 1), counted = at::full({}, 3.0F),
               ends = at::tensor({0, 1, 4}, at::kInt);
  constexpr int64_t kSeed = -7, kLongest = 3, kHeads = 2;
  constexpr double kEps = 1e-5, kScale = 0.5;
  const Stack drop = {p, kSeed, kSite, keys};
  const auto joined = [](std::initializer_list<Stack> parts) {
    Stack result;
    for (const Stack& part : parts) result.insert(result.end(), part.begin(), part.end());
    return result;
  };
  std::map<std::string, Stack> calls = {
      {"linear", {x, weight, vector}},
      {"linear_backward", {x, x, weight, c10::List<bool>({true, true, true})}},
      {"qkv_linear", {x, weight, weight, weight, vector, vector, vector}},
      {"padded_linear", {x, weight, vector, hidden + 2}},
      {"fp8_linear", {x, c10::List<Tensor>({weight}), c10::List<Tensor>({vector}), at::ones({2, 3}), at::zeros({3})}},
      {"linear_sums", {x, x}},
      {"linear_gelu", {x, weight, vector}},
      {"linear_gelu_backward", {x, weight, x}},
      {"bias_gelu", {x, vector, true}},
      {"bias_gelu_backward", {x, x, vector, true}},
      {"layer_norm", {x, vector, vector, kEps}},
      {"bias_dropout_residual_layer_norm", joined({{x, vector, x, vector, vector, kEps}, drop})},
      {"embedding_layer_norm_dropout", joined({{ids, ids, ids, word, word, types, vector, vector, kEps}, drop})},
      {"attention", joined({{qkv, ends, kLongest, kHeads}, drop})},
      {"masked_softmax_dropout", joined({{scores, ends, kScale}, drop})},
      {"dropout", joined({{x}, drop})},
      {"dropout_mask", {keys, kSeed, kSite, hidden, p}},
      {"cross_entropy", {x, ids, kClasses, counted}}};
  const auto returned = [&](const std::string& name) { return call(name, calls.at(name)); };
  const Stack in_fp8 = returned("fp8_linear"), norm = returned("layer_norm"),
              residual = returned("bias_dropout_residual_layer_norm"),
              embedded = returned("embedding_layer_norm_dropout"), attended = returned("attention"),
              softmax = returned("masked_softmax_dropout"), dropped = returned("dropout"),
              loss = returned("cross_entropy");
  calls["fp8_linear_backward"] = {
      x, in_fp8[1], in_fp8[2], at::ones({2, 3}), at::zeros({3}), c10::List<bool>({true, true, true})};
  calls["layer_norm_backward"] = {x, x, norm[1], norm[2], vector};
  calls["bias_dropout_residual_layer_norm_backward"] =
      joined({{x, x, vector, x, residual[1], residual[2], vector}, drop, {residual[3]}});
  calls["embedding_layer_norm_dropout_backward"] =
      joined({{x, ids, ids, ids, word, word, types, embedded[1], embedded[2], vector}, drop, {embedded[3]}});
  calls["attention_backward"] = joined({{x, qkv, attended[0], attended[1], attended[2], ends, kLongest, kHeads}, drop});
  calls["masked_softmax_dropout_backward"] = joined({{softmax[0], scores, softmax[1], ends, kScale}, drop});
  calls["dropout_backward"] = joined({{x}, drop, {dropped[1]}});
  calls["cross_entropy_backward_"] = {x.clone(), loss[0], ids, loss[1], kClasses, counted};
  return calls;
}

/// Arguments that cannot be wrong: any value, any shape, or rows of any width.
const std::set<std::string> kAnyValue = {"tanh", "seed", "scale", "needed", "weights", "biases"};
const std::set<std::string> kAnyShape = {"dropout x", "dropout_backward grad"};
const std::set<std::string> kAnyWidth = {"linear_sums grad",
                                         "linear_sums x",
                                         "masked_softmax_dropout scores",
                                         "cross_entropy logits",
                                         "cross_entropy_backward_ logits",
                                         "dropout_mask keys"};

/// Numbers that are refused, by the argument's name.
std::vector<IValue> bad_numbers(const std::string& name, int64_t hidden) {
  constexpr int64_t kOverflow = 0x5555555555555555;  // 3 * num_heads is -1, which divides anything
  if (name == "p") return {-0.1, 1.0, kNan};
  if (name == "eps") return {0.0, -1e-5, kNan};
  if (name == "site") return {int64_t{-1}, int64_t{1} << 32};
  if (name == "max_seqlen") return {int64_t{-1}, std::numeric_limits<int64_t>::min()};
  if (name == "num_heads") return {int64_t{0}, int64_t{-2}, int64_t{5}, kOverflow};
  if (name == "columns") return {int64_t{-1}};
  if (name == "num_classes") return {int64_t{0}, int64_t{-1}, hidden + 1};
  return {};
}

/// Ids that lie in no table.
std::vector<Tensor> bad_ids(const std::string& name) {
  constexpr int64_t kFar = int64_t{1} << 40;
  if (name == "labels" || name.ends_with("_ids")) {
    return {at::tensor({0, 1, -1, 0}, at::kLong), at::full({kCallTokens}, kFar, at::kLong),
            at::tensor({0, 0, 0, 9}, at::kLong)};
  }
  if (name == "cu_seqlens") {
    return {at::tensor({0, 1, 9}, at::kInt), at::tensor({1, 2, 4}, at::kInt), at::tensor({0, -1, 4}, at::kInt)};
  }
  return {};
}

/// Calls with the value in place of the argument. The error must begin with the name of the operator and contain
/// `said`.
template <class Said>
void check_refused(const std::string& name, Stack arguments, size_t index, IValue value, const Said& said) {
  arguments[index] = std::move(value);
  CHECK_THROWS_WITH(call(name, std::move(arguments)), Catch::Matchers::StartsWith(name + ": ") && said);
}

void check_tensor_faults(const std::string& name, const Stack& arguments, size_t index, const std::string& argument,
                         bool strides) {
  const Tensor good = arguments[index].toTensor();
  const std::string place = name + " " + argument;
  const auto check = [&](const Tensor& bad, const auto& said) { check_refused(name, arguments, index, bad, said); };
  check(Tensor(), Contains(argument) && Contains("undefined"));
  if (!kAnyShape.contains(place)) {
    const Tensor deep = good.unsqueeze(0);
    check(deep, Contains(argument) && Contains(c10::str(deep.sizes())));
    at::DimVector column(good.sizes());
    if (!column.empty()) column.back() = 1;
    const Tensor wide = column.empty() ? good.expand({2}) : at::cat({good, at::ones(column, good.options())}, -1);
    if (!kAnyWidth.contains(place)) check(wide, Contains("got"));
  }
  const bool floats = good.is_floating_point();
  check(good.to(floats || good.scalar_type() == at::kInt ? at::kLong : at::kInt),
        Contains(argument) && Contains("got"));
  check(good.to(at::kComplexFloat), Contains(argument) && Contains("ComplexFloat"));
  if (const Tensor strided = spread(good); strides && !strided.is_contiguous()) {
    check(strided, Contains(argument) && Contains(c10::str(strided.strides())));
  }
  if (good.dim() > 0) check(good.to_sparse(), Contains(argument) && Contains("Sparse"));
  if (name != "dropout_mask") check(good.to(at::kMeta), Contains("meta") && Contains("cpu"));
  for (const Tensor& ids : bad_ids(argument)) {
    INFO(ids);
    check(ids, Contains(argument == "cu_seqlens" ? "seq" : argument + "[") && Contains("got"));
  }
}

void check_faults(const std::string& name, const Stack& arguments, int64_t hidden, bool strides) {
  const c10::OperatorHandle handle = find(name);
  const auto& schema = handle.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    const std::string& argument = schema[i].name();
    INFO(argument);
    if (arguments[i].isTensor()) {
      check_tensor_faults(name, arguments, i, argument, strides);
    } else if (!kAnyValue.contains(argument)) {
      const auto numbers = bad_numbers(argument, hidden);
      CHECK_FALSE(numbers.empty());
      for (const IValue& number : numbers) {
        INFO(number);
        const std::string said = argument == "p" ? "dropout probability" : argument;
        const std::string value = number.isInt() ? c10::str(number.toInt()) : c10::str(number.toDouble());
        check_refused(name, arguments, i, number, Contains(said) && Contains(value));
      }
    }
  }
}

TEST_CASE("Every operator of the schema checks its arguments, whoever calls it", "[unit]") {
  std::set<std::string> operators;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.starts_with("bert::")) operators.insert(name.name.substr(6));
  }
  struct Caller {
    std::string name;
    bool requires_grad, strides;  // strides: wrong strides are seen; a conversion by autocast repairs them
    std::function<void(const std::function<void()>&)> run;
  };
  const std::vector<Caller> callers = {{"plain", false, true, [](const auto& body) { body(); }},
                                       {"autograd", true, true, [](const auto& body) { body(); }},
                                       {"no_grad", true, true,
                                        [](const auto& body) {
                                          const at::NoGradGuard no_grad;
                                          body();
                                        }},
                                       {"inference mode", false, true,
                                        [](const auto& body) {
                                          const c10::InferenceMode inference;
                                          body();
                                        }},
                                       {"autocast", false, false, [](const auto& body) {
                                          const AutocastGuard autocast(c10::kCPU, Precision::kBf16);
                                          body();
                                        }}};
  for (const Caller& caller : callers) {
    for (const int64_t hidden : {8, 6}) {
      const auto calls = valid_calls(at::kFloat, hidden);
      CHECK(calls.size() == operators.size());
      caller.run([&] {
        for (const std::string& name : operators) {
          INFO(caller.name << " " << name << " of " << hidden << " columns");
          REQUIRE(calls.contains(name));
          Stack arguments = calls.at(name);
          for (IValue& value : arguments) {
            if (caller.requires_grad && name.find("backward") == std::string::npos && value.isTensor() &&
                value.toTensor().is_floating_point()) {
              value = value.toTensor().detach().requires_grad_();
            }
          }
          CHECK_NOTHROW(call(name, arguments));
          check_faults(name, arguments, hidden, caller.strides);
        }
      });
    }
  }
}

TEST_CASE("Every operator of the schema takes what is right, in every dtype, with dropout and without", "[unit]") {
  for (const at::ScalarType type : kTypes) {
    for (const double p : {0.0, 0.1}) {
      for (auto& [name, arguments] : valid_calls(type, 8, p)) {
        INFO(name << " " << type << " " << p);
        CHECK_NOTHROW(call(name, arguments));
        const auto& schema = find(name).schema().arguments();
        for (size_t i = 0; i < schema.size(); ++i) {  // leave optional arguments out
          if (schema[i].name() == "bias" && schema[i].type()->kind() == c10::TypeKind::OptionalType)
            arguments[i] = IValue();
          if (schema[i].name() == "keys" && p == 0.0 && name != "dropout_mask") arguments[i] = IValue();
          if (schema[i].name() == "kept") arguments[i] = at::empty({0}, at::kByte);
        }
        CHECK_NOTHROW(call(name, arguments));
      }
    }
  }
}

}  // namespace
}  // namespace bert
