// Every public operator: each argument is spoilt in every way; mixed dtypes, autocast, no rows or columns, and NaN.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda_ext/padded_linear.h"
#include "optim/amp.h"
#include "tests/support/ops_testing.h"

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

/// Valid calls on T = `rows` tokens of H = `hidden` columns. Activations come first.
std::vector<Operator> operators(int64_t rows, int64_t hidden = 6) {
  constexpr int64_t kWords = 9;
  constexpr double kEps = 1e-5, kDrop = 0.1;
  const auto floats = [](at::IntArrayRef sizes) { return randn(sizes, 1).to(at::kFloat); };
  const auto dropout = [](const Tensor& keys) { return ops::Dropout{.p = kDrop, .seed = 1, .site = 2, .keys = keys}; };
  const Tensor x = floats({rows, hidden}), vector = floats({hidden}), weight = floats({hidden, hidden}),
               keys = keys_of(rows), ids = at::zeros({rows}, at::kLong),
               ends = at::tensor({int64_t{0}, rows}, at::kLong).to(at::kInt);
  return {
      {"linear",
       {{"x", x}, {"weight", weight}, {"bias", vector, true}},
       [](const Tensors& in) { return ops::linear(in[0], in[1], in[2]); }},
      {"padded_linear",
       {{"x", x}, {"weight", weight}, {"bias", vector}},
       [=](const Tensors& in) { return ops::padded_linear(in[0], in[1], in[2], hidden + 2); }},
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
       {{"word", floats({kWords, hidden})},
        {"position", floats({kWords, hidden})},
        {"type", floats({2, hidden})},
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
       {{"qkv", floats({rows, 3 * hidden})}, {"cu_seqlens", ends}, {"dropout.keys", keys}},
       [=](const Tensors& in) { return ops::attention(in[0], in[1], rows, 2, dropout(in[2])); }},
      {"masked_softmax_dropout",
       {{"scores", floats({1, 2, rows, rows})}, {"cu_seqlens", ends}, {"dropout.keys", keys}},
       [=](const Tensors& in) { return ops::masked_softmax_dropout(in[0], in[1], 0.5, dropout(in[2])); }},
      {"dropout",
       {{"x", x}, {"dropout.keys", keys}},
       [=](const Tensors& in) { return ops::dropout(in[0], dropout(in[1])); }},
      {"cross_entropy",
       {{"logits", x}, {"labels", ids}},
       [=](const Tensors& in) { return ops::cross_entropy(in[0], in[1], hidden - 1); }},
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
        if (fault.name == "rank" && op.name == "dropout" && i == 0) continue;  // it takes any rank
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

/// Every gradient that `got` has is near that of `want`, in the dtype of its input.
void check_gradients(const Result& got, const Result& want, const Tensors& inputs) {
  size_t i = 0;
  for (const Tensor& input : inputs) {
    if (!input.is_floating_point()) continue;
    INFO("gradient " << i);
    const Tensor &grad = got.grads[i], &exact = want.grads[i++];
    CHECK(grad.scalar_type() == input.scalar_type());
    const double size = std::max(1.0, exact.abs().max().item<double>());
    CHECK(mismatch(grad, exact, Tolerance{4 * size * kBFloat16.absolute, 4 * kBFloat16.relative}) == "");
  }
}

TEST_CASE("Every operator takes arguments of another floating dtype, but a product, which names them", "[unit]") {
  for (const Operator& op : operators(4)) {
    for (size_t i = 0; i < op.arguments.size(); ++i) {
      const Argument& argument = op.arguments[i];
      if (!argument.tensor.is_floating_point()) continue;
      for (const auto other : {at::kDouble, at::kBFloat16, at::kHalf}) {
        INFO(op.name << " " << argument.name << " " << other);
        Tensors inputs = tensors_of(op);
        inputs[i] = argument.tensor.to(other);
        if (op.name == "linear") {
          CHECK_THROWS_WITH(op.call(inputs), Contains(i == 0 ? c10::str("linear: weight must be ", other, ", as x is")
                                                             : c10::str("linear: ", argument.name, " must be Float")));
          continue;
        }
        const Result got = evaluate(op.call, inputs), want = evaluate(op.call, inputs, at::kDouble);
        CHECK(got.y.scalar_type() == evaluate(op.call, inputs, inputs[0].scalar_type()).y.scalar_type());
        CHECK(mismatch(got.y, want.y, kBFloat16) == "");
        check_gradients(got, want, inputs);
      }
    }
  }
  const Tensor x = at::ones({64, 128}), weight = at::ones({128, 128}), bias = at::ones({128});  // for oneDNN
  CHECK_THROWS_WITH(ops::linear(x, weight.to(at::kBFloat16), bias), Contains("linear: weight must be Float"));
  CHECK_THROWS_WITH(ops::linear(x, weight, bias.to(at::kBFloat16)), Contains("linear: bias must be Float"));
}

TEST_CASE("Under autocast every operator has the stated dtypes, and values near fp32's", "[unit]") {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const at::ScalarType low = precision == Precision::kBf16 ? at::kBFloat16 : at::kHalf;
    for (const Operator& op : operators(4)) {
      const bool lowers = op.name.ends_with("linear") || op.name == "attention" || op.name.starts_with("embedding");
      for (const auto activations : {at::kFloat, low}) {
        INFO(op.name << " " << low << " of " << activations);
        Tensors inputs = tensors_of(op);
        inputs[0] = inputs[0].to(activations);
        const Op cast = [&](const Tensors& in) {  // its backward runs outside of autocast
          const AutocastGuard autocast(c10::kCPU, precision);
          return op.call(in);
        };
        const Result got = evaluate(cast, inputs), want = evaluate(op.call, inputs, at::kDouble);
        CHECK(got.y.scalar_type() == (op.name == "cross_entropy" ? at::kFloat : lowers ? low : activations));
        CHECK(mismatch(got.y, want.y, Tolerance{4 * kBFloat16.absolute, 4 * kBFloat16.relative}) == "");
        check_gradients(got, want, inputs);
      }
    }
  }
}

TEST_CASE("Without columns results are empty, and attention and cross entropy refuse", "[unit]") {
  for (const Operator& op : operators(4, 0)) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      INFO(op.name << " " << type);
      const Tensors inputs = in_type(tensors_of(op), type);
      if (op.name == "attention") {
        CHECK_THROWS_WITH(op.call(inputs), Contains("attention: qkv must be [T, 3 * num_heads * D]"));
      } else if (op.name == "cross_entropy") {
        CHECK_THROWS_WITH(op.call(inputs), Contains("cross_entropy: num_classes must be in [1, 0], got -1"));
      } else if (op.name != "masked_softmax_dropout") {  // its scores have the columns of a sequence
        const Result result = evaluate(op.call, inputs);
        CHECK(result.y.size(0) == 4);
        CHECK(result.y.size(1) == (op.name == "padded_linear" ? 2 : 0));
        CHECK(result.y.ne(0).sum().item<int64_t>() == 0);
        for (const Tensor& grad : result.grads) CHECK((!grad.defined() || grad.numel() == 0));
      }
    }
  }
}

TEST_CASE("Attention and its softmax take no sequences, and softmax no heads", "[unit]") {
  const Tensor none = at::zeros({1}, at::kInt), keys = keys_of(0);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    INFO(type);
    const ops::Dropout dropout{.p = 0.1, .seed = 1, .site = 2, .keys = keys};
    const auto check_empty = [&](const Op& op, at::IntArrayRef sizes, at::IntArrayRef result_sizes) {
      const Result result = evaluate(op, {at::ones(sizes)}, type);
      CHECK(result.y.sizes() == result_sizes);
      CHECK(result.grads[0].sizes() == sizes);
    };
    check_empty([&](const Tensors& in) { return ops::attention(in[0], none, 0, 2, dropout); }, {0, 12}, {0, 4});
    const auto softmax_of = [&](const Tensor& ends) {
      return [&, ends](const Tensors& in) { return ops::masked_softmax_dropout(in[0], ends, 0.5, dropout); };
    };
    check_empty(softmax_of(none), {0, 2, 3, 3}, {0, 2, 3, 3});
    check_empty(softmax_of(at::zeros({2}, at::kInt)), {1, 0, 3, 3}, {1, 0, 3, 3});
    CHECK_THROWS_WITH(ops::attention(at::ones({0, 12}, type), none, 0, 0, {}), Contains("num_heads = 0"));
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
