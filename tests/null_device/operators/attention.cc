#include "tests/null_device/operators/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <string>

#include "tests/null_device/null_device.h"

namespace null_device {
namespace {

/// The finaliser of SplitMix64.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

at::Tensor tensor_of(const Rows& rows, int64_t count, int64_t columns, at::ScalarType type) {
  return at::from_blob(rows.data, {count, columns}, {rows.stride, 1}, at::TensorOptions().dtype(type));
}
at::Tensor read(const Rows& rows, int64_t count, int64_t columns, at::ScalarType type) {
  return tensor_of(rows, count, columns, type).to(at::kFloat);
}
void write(const Rows& rows, const at::Tensor& values, at::ScalarType type) {
  tensor_of(rows, values.size(0), values.size(1), type).copy_(values);
}

at::Tensor logsumexp_of(const Head& head) {
  return at::from_blob(head.logsumexp, {head.queries}, {head.logsumexp_stride}, at::TensorOptions().dtype(at::kFloat));
}

/// The arguments of the softmax.
at::Tensor scores_of(const Head& head, const at::Tensor& query, const at::Tensor& key) {
  at::Tensor scores = at::mm(query, key.t()).mul_(head.scale);
  if (head.bias.data != nullptr) scores.add_(tensor_of(head.bias, head.queries, head.keys, head.type));
  return scores;
}

}  // namespace

bool Dropout::keeps(int64_t query, int64_t key) const {
  const uint64_t place = first + static_cast<uint64_t>(query) * row + static_cast<uint64_t>(key);
  const uint64_t bits = mixed(mixed(seed + 0x9E3779B97F4A7C15ULL) + (offset + place) * 0x9E3779B97F4A7C15ULL);
  constexpr double kUnit = 1.0 / static_cast<double>(uint64_t{1} << 53);
  return static_cast<double>(bits >> 11) * kUnit >= p;
}

at::Tensor Dropout::mask(int64_t queries, int64_t keys) const {
  if (p <= 0.0) return {};
  at::Tensor result = at::empty({queries, keys}, at::kFloat);
  auto* next = result.mutable_data_ptr<float>();
  const auto kept = static_cast<float>(factor);
  for (int64_t q = 0; q < queries; ++q) {
    for (int64_t k = 0; k < keys; ++k) *next++ = keeps(q, k) ? kept : 0.0F;
  }
  return result;
}

void attention_forward(const Head& head) {
  const c10::InferenceMode inference;
  if (head.queries <= 0) return;
  const at::Tensor query = read(head.query, head.queries, head.head_size, head.type);
  const at::Tensor key = read(head.key, head.keys, head.head_size, head.type);
  const at::Tensor value = read(head.value, head.keys, head.value_size, head.type);
  at::Tensor probabilities = scores_of(head, query, key);
  const at::Tensor logsumexp = at::logsumexp(probabilities, 1);
  probabilities.sub_(logsumexp.unsqueeze(1)).exp_();
  if (const at::Tensor mask = head.dropout.mask(head.queries, head.keys); mask.defined()) probabilities.mul_(mask);
  write(head.out, at::mm(probabilities, value), head.type);
  if (head.logsumexp != nullptr) logsumexp_of(head).copy_(logsumexp);
}

void attention_backward(const Head& head) {
  const c10::InferenceMode inference;
  if (head.queries <= 0 && head.keys <= 0) return;
  const at::Tensor query = read(head.query, head.queries, head.head_size, head.type);
  const at::Tensor key = read(head.key, head.keys, head.head_size, head.type);
  const at::Tensor value = read(head.value, head.keys, head.value_size, head.type);
  const at::Tensor out = read(head.out, head.queries, head.value_size, head.type);
  const at::Tensor grad = read(head.grad_out, head.queries, head.value_size, head.type);
  const at::Tensor mask = head.dropout.mask(head.queries, head.keys);

  at::Tensor probabilities = scores_of(head, query, key);
  probabilities.sub_(logsumexp_of(head).unsqueeze(1)).exp_();
  const at::Tensor dropped = mask.defined() ? probabilities * mask : probabilities;
  write(head.grad_value, at::mm(dropped.t(), grad), head.type);

  at::Tensor grad_scores = at::mm(grad, value.t());  // of what the values were multiplied by
  if (mask.defined()) grad_scores.mul_(mask);
  grad_scores.sub_((out * grad).sum(1, /*keepdim=*/true)).mul_(probabilities).mul_(head.scale);
  write(head.grad_query, at::mm(grad_scores, key), head.type);
  write(head.grad_key, at::mm(grad_scores.t(), query), head.type);
}

void for_each_head(int64_t sequences, int64_t heads, const std::function<void(int64_t sequence, int64_t head)>& run) {
  at::parallel_for(0, sequences * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(i / heads, i % heads);
  });
}

Piece piece_of(const int32_t* cumulative, int64_t sequence, int64_t longest) {
  const Piece piece{cumulative[sequence], cumulative[sequence + 1] - cumulative[sequence]};
  if (piece.rows < 0 || piece.rows > longest) {
    fault("attention: sequence " + std::to_string(sequence) + " has " + std::to_string(piece.rows) +
          " tokens, and the longest should have " + std::to_string(longest));
  }
  return piece;
}

}  // namespace null_device
