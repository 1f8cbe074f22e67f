// Every public operator with every argument spoilt in every way, without rows, and with NaN.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda_ext/padded_linear.h"
#include "tests/ops_testing.h"

namespace bert {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Argument {
  std::string name;
  Tensor tensor;
  bool optional = false;
};

struct Operator {
  std::string name;
  std::vector<Argument> arguments;
  Op call;
};

/// Valid calls on T = `rows` tokens.
std::vector<Operator> operators(int64_t rows) {
  constexpr int64_t kHidden = 6, kWords = 9;
  constexpr double kEps = 1e-5, kDrop = 0.1;
  const auto floats = [](at::IntArrayRef sizes) { return randn(sizes, 1).to(at::kFloat); };
  const auto dropout = [](const Tensor& keys) { return ops::Dropout{.p = kDrop, .seed = 1, .site = 2, .keys = keys}; };
  const Tensor x = floats({rows, kHidden}), vector = floats({kHidden}), weight = floats({kHidden, kHidden}),
               keys = keys_of(rows), ids = at::zeros({rows}, at::kLong),
               ends = at::tensor({int64_t{0}, rows}, at::kLong).to(at::kInt);
  return {
      {"linear",
       {{"x", x}, {"weight", weight}, {"bias", vector, true}},
       [](const Tensors& in) { return ops::linear(in[0], in[1], in[2]); }},
      {"padded_linear",
       {{"x", x}, {"weight", weight}, {"bias", vector}},
       [](const Tensors& in) { return ops::padded_linear(in[0], in[1], in[2], kHidden + 2); }},
      {"qkv_linear",
       {{"x", x},
        {"query_weight", weight},
        {"key_weight", weight},
        {"value_weight", weight},
        {"query_bias", vector},
        {"key_bias", vector},
        {"value_bias", vector}},
       [](const Tensors& in) {
         return ops::qkv_linear(in[0], {in[1], in[2], in[3], in[4], in[5], in[6]});
       }},
      {"bias_gelu",
       {{"x", x}, {"bias", vector}},
       [](const Tensors& in) { return ops::bias_gelu(in[0], in[1], ops::Gelu::kTanh); }},
      {"layer_norm",
       {{"x", x}, {"gamma", vector}, {"beta", vector}},
       [](const Tensors& in) { return ops::layer_norm(in[0], in[1], in[2], kEps); }},
      {"bias_dropout_residual_layer_norm",
       {{"x", x}, {"bias", vector}, {"residual", x}, {"gamma", vector}, {"beta", vector}, {"dropout.keys", keys}},
       [=](const Tensors& in) {
         return ops::bias_dropout_residual_layer_norm(in[0], in[1], in[2], in[3], in[4], kEps, dropout(in[5]));
       }},
      {"embedding_layer_norm_dropout",
       {{"word", floats({kWords, kHidden})},
        {"position", floats({kWords, kHidden})},
        {"type", floats({2, kHidden})},
        {"gamma", vector},
        {"beta", vector},
        {"input_ids", ids},
        {"position_ids", ids},
        {"token_type_ids", ids},
        {"dropout.keys", keys}},
       [=](const Tensors& in) {
         return ops::embedding_layer_norm_dropout(in[5], in[6], in[7], {in[0], in[1], in[2]}, in[3], in[4], kEps,
                                                  dropout(in[8]));
       }},
      {"attention",
       {{"qkv", floats({rows, 3 * kHidden})}, {"cu_seqlens", ends}, {"dropout.keys", keys}},
       [=](const Tensors& in) { return ops::attention(in[0], in[1], rows, 2, dropout(in[2])); }},
      {"masked_softmax_dropout",
       {{"scores", floats({1, 2, rows, rows})}, {"cu_seqlens", ends}, {"dropout.keys", keys}},
       [=](const Tensors& in) { return ops::masked_softmax_dropout(in[0], in[1], 0.5, dropout(in[2])); }},
      {"dropout",
       {{"x", x}, {"dropout.keys", keys}},
       [=](const Tensors& in) { return ops::dropout(in[0], dropout(in[1])); }},
      {"cross_entropy",
       {{"logits", x}, {"labels", ids}},
       [](const Tensors& in) { return ops::cross_entropy(in[0], in[1], kHidden - 1); }},
  };
}

Tensors tensors_of(const Operator& op) {
  Tensors result;
  for (const Argument& argument : op.arguments) result.push_back(argument.tensor);
  return result;
}

TEST_CASE("Attention refuses lengths that are not those of its tokens, in every dtype", "[unit]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const Tensor qkv = at::ones({40, 12}, dtype);
    const auto attend = [&](std::vector<int> ends, int64_t longest) {
      return ops::attention(qkv, at::tensor(ends, at::kInt), longest, 1, {});
    };
    CHECK_NOTHROW(attend({0, 30, 40}, 30));
    CHECK_THROWS_WITH(attend({0, 50}, 50),
                      Contains("cu_seqlens must go from 0 to the number of tokens, 40, got 0 to 50"));
    CHECK_THROWS_WITH(attend({0, 30, 10, 40}, 30), Contains("got cu_seqlens 30 then 10 at 1"));
    CHECK_THROWS_WITH(attend({0, 30, 40}, 20), Contains("a sequence must have 0 to 20 tokens"));
    CHECK_THROWS_WITH(attend({1, 40}, 40), Contains("cu_seqlens must begin with 0, got 1"));
  }
}

/// The same values with other strides.
Tensor spread(const Tensor& tensor) { return at::stack({tensor, tensor}, tensor.dim()).select(tensor.dim(), 0); }

TEST_CASE("Every operator names the argument that is undefined, of another rank, dtype or device, or not contiguous",
          "[unit]") {
  struct Fault {
    std::string name;
    std::function<Tensor(const Tensor&)> spoil;
    std::function<std::string(const Tensor&)> said;  // of the spoilt tensor
  };
  const std::vector<Fault> faults = {
      {"undefined", [](const Tensor&) { return Tensor(); }, [](const Tensor&) { return "undefined"; }},
      {"rank", [](const Tensor& t) { return t.unsqueeze(0); }, [](const Tensor& t) { return c10::str(t.sizes()); }},
      {"dtype",
       [](const Tensor& t) {
         return t.to(t.is_floating_point() || t.scalar_type() == at::kInt ? at::kLong : at::kInt);
       },
       [](const Tensor& t) { return c10::str(t.scalar_type()); }},
      {"strides", spread, [](const Tensor& t) { return c10::str(t.strides()); }}};
  for (const Operator& op : operators(4)) {
    CHECK_NOTHROW(op.call(tensors_of(op)));
    for (size_t i = 0; i < op.arguments.size(); ++i) {
      const Argument& argument = op.arguments[i];
      for (const Fault& fault : faults) {
        if (fault.name == "undefined" && argument.optional) continue;
        if (fault.name == "rank" && op.name == "dropout" && i == 0) continue;  // it takes any
        INFO(op.name << " " << argument.name << " " << fault.name);
        Tensors inputs = tensors_of(op);
        inputs[i] = fault.spoil(argument.tensor);
        CHECK_THROWS_WITH(op.call(inputs), Contains(op.name + ": " + argument.name) && Contains(fault.said(inputs[i])));
      }
      INFO(op.name << " " << argument.name << " on another device");
      Tensors inputs = tensors_of(op);
      inputs[i] = argument.tensor.to(at::kMeta);
      CHECK_THROWS_WITH(op.call(inputs), Contains(op.name + ": ") && Contains("meta") && Contains("cpu"));
    }
  }
}

TEST_CASE("Every operator refuses a tensor that is one longer than the others say", "[unit]") {
  for (const Operator& op : operators(4)) {
    for (size_t i = 0; i < op.arguments.size(); ++i) {
      const Tensor& tensor = op.arguments[i].tensor;
      Tensors inputs = tensors_of(op);
      inputs[i] = at::cat({tensor, tensor.narrow(-1, 0, 1)}, -1);
      const bool free = op.name == "dropout" && i == 0;  // rows of any width
      const bool width =
          op.name == "cross_entropy" || op.name == "masked_softmax_dropout";  // that of the first argument
      INFO(op.name << " " << op.arguments[i].name << " " << inputs[i].sizes());
      if (free || (width && i == 0)) {
        CHECK_NOTHROW(op.call(inputs));
      } else {
        CHECK_THROWS_WITH(op.call(inputs), Contains(op.name + ": ") && Contains("got"));
      }
    }
  }
}

TEST_CASE("Every operator takes no rows, forward and backward", "[unit]") {
  for (const Operator& op : operators(0)) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      INFO(op.name << " " << type);
      Tensors inputs;
      for (const Tensor& t : tensors_of(op)) inputs.push_back(t.is_floating_point() ? t.to(at::kDouble) : t);
      const Result result = evaluate(op.call, inputs, type);
      CHECK((op.name == "cross_entropy" ? result.y.item<double>() == 0.0 : result.y.numel() == 0));
      for (const Tensor& grad : result.grads) CHECK((!grad.defined() || grad.ne(0).sum().item<int64_t>() == 0));
    }
  }
}

TEST_CASE("A NaN in any argument of any operator is seen in its result", "[unit]") {
  for (const Operator& op : operators(4)) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      for (size_t i = 0; i < op.arguments.size(); ++i) {
        if (!op.arguments[i].tensor.is_floating_point()) continue;
        INFO(op.name << " " << op.arguments[i].name << " " << type);
        Tensors inputs;
        for (const Tensor& t : tensors_of(op)) inputs.push_back(t.is_floating_point() ? t.to(type) : t);
        inputs[i] = inputs[i].clone();
        inputs[i].view(-1)[0] = NAN;
        CHECK(op.call(inputs).isnan().any().item<bool>());
      }
    }
  }
}

}  // namespace
}  // namespace bert
