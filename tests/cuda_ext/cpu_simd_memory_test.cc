// The CPU's vector loops on buffers of exactly the stated sizes, at tails of every kind. Under AddressSanitizer a read
// or write past an end fails. ops_test.cc tests the values with LibTorch.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cuda_ext/simd/kernels.h"
#include "tests/testing.h"

namespace bert::simd {
namespace {

/// Memory at a multiple of kStreamAlign, as results that are written past the caches require.
template <class T>
struct StreamAligned {
  using value_type = T;
  static constexpr std::align_val_t kAlign{kStreamAlign};
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kAlign)); }
  void deallocate(T* memory, size_t /*count*/) { ::operator delete(memory, kAlign); }
  bool operator==(const StreamAligned&) const = default;
};

using Bytes = std::vector<char>;
using Results = std::vector<char, StreamAligned<char>>;
using Floats = std::vector<float>;
using Integers = std::vector<int64_t>;

size_t bytes_of(Type type) { return type == Type::kFloat ? sizeof(float) : sizeof(uint16_t); }

/// Numbers from 1/2 to 1 of either sign.
Bytes numbers(Type type, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  Bytes bytes(static_cast<size_t>(count) * bytes_of(type));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const uint32_t bits = static_cast<uint32_t>(random()), sign = bits & 0x80000000u;
    const uint32_t single = sign | 0x3F000000u | (bits & 0x7FFFFFu);
    const auto half = static_cast<uint16_t>(sign >> 16 | 0x3800u | (bits & 0x3FFu));
    const auto bfloat16 = static_cast<uint16_t>(single >> 16);
    if (type == Type::kFloat) std::memcpy(&bytes[i * 4], &single, 4);
    if (type == Type::kHalf) std::memcpy(&bytes[i * 2], &half, 2);
    if (type == Type::kBFloat16) std::memcpy(&bytes[i * 2], &bfloat16, 2);
  }
  return bytes;
}
Floats floats(int64_t count) {
  Floats result(static_cast<size_t>(count));
  const Bytes bytes = numbers(Type::kFloat, count);
  if (count > 0) std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}
Integers integers(int64_t count, int64_t high) {
  Integers result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<int64_t>(i * 7) % high;
  return result;
}

bool finite(std::span<const char> bytes, Type type) {
  for (size_t i = 0; i < bytes.size(); i += bytes_of(type)) {
    uint32_t bits = 0;
    std::memcpy(&bits, &bytes[i], bytes_of(type));
    const uint32_t exponent = type == Type::kFloat ? 0x7F800000u : type == Type::kHalf ? 0x7C00u : 0x7F80u;
    if ((bits & exponent) == exponent) return false;
  }
  return true;
}
bool finite(const Floats& values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

/// One set of sizes and a type; each function runs a family of loops.
struct Case {
  Type type;
  int64_t rows, columns;
  bool stream;  // results are written past the caches

  [[nodiscard]] Bytes matrix() const { return numbers(type, rows * columns); }
  [[nodiscard]] Mask mask(const Integers& keys) const {
    return {.seed = 5, .site = 7, .threshold = 1u << 30, .keys = keys.data(), .scale = 4.0F / 3.0F};
  }

  void bias_gelu(bool tanh) const {
    const Bytes x = matrix(), grad = matrix();
    const Floats bias = floats(columns);
    Results out(x.size(), '\x7F');
    Floats dbias(static_cast<size_t>(columns), NAN);
    const BiasGelu arguments{.type = type,
                             .tanh = tanh,
                             .stream = stream,
                             .columns = columns,
                             .x = x.data(),
                             .grad = grad.data(),
                             .bias = bias.data(),
                             .out = out.data(),
                             .dbias = dbias.data()};
    kernels().bias_gelu(arguments, 0, rows);
    CHECK(finite(out, type));
    kernels().bias_gelu_backward(arguments, 0, rows);
    CHECK((finite(out, type) && finite(dbias)));
  }

  void layer_norm(NormInput input) const {
    constexpr int64_t kTableRows = 3;
    const Bytes x = matrix(), residual = matrix(), grad = matrix(), table = numbers(type, kTableRows * columns);
    const Floats bias = floats(columns), gamma = floats(columns), beta = floats(columns);
    const Integers keys = integers(rows, rows + 1), ids = integers(rows, kTableRows);
    Results y(x.size(), '\x7F'), dx(x.size(), '\x7F');
    const Type sum_type = input == NormInput::kEmbedding ? Type::kFloat : type;
    Results dresidual(static_cast<size_t>(rows * columns) * bytes_of(sum_type));  // a plain LayerNorm has none
    Floats mean(static_cast<size_t>(rows)), rstd(mean), scratch(static_cast<size_t>(norm_scratch(columns)));
    const int64_t summed = input == NormInput::kEmbedding ? kTableRows : 0;
    Floats partial(static_cast<size_t>((input == NormInput::kResidual ? 3 : 2 + summed) * columns), NAN);
    std::vector<uint8_t> kept(static_cast<size_t>(rows * kept_bytes(columns)));
    LayerNorm arguments{};
    arguments.input = input;
    arguments.type = type;
    arguments.columns = columns;
    arguments.x = x.data();
    arguments.residual = residual.data();
    arguments.bias = bias.data();
    for (int i = 0; i < 3; ++i) arguments.tables[i] = table.data(), arguments.ids[i] = ids.data();
    arguments.gamma = gamma.data();
    arguments.beta = beta.data();
    arguments.eps = 0.1F;
    arguments.mask = mask(keys);
    arguments.mask.kept = kept.data();
    arguments.y = y.data();
    arguments.mean = mean.data();
    arguments.rstd = rstd.data();
    arguments.grad = grad.data();
    arguments.dx = dx.data();
    arguments.dresidual = dresidual.data();
    arguments.partial = partial.data();
    arguments.summed_rows = summed;
    arguments.stream = stream;
    arguments.scratch = scratch.data();
    kernels().layer_norm(arguments, 0, rows);
    CHECK((finite(y, type) && finite(mean) && finite(rstd)));
    for (const bool drawn : {true, false}) {
      arguments.mask.drawn = drawn;
      kernels().layer_norm_backward(arguments, 0, rows);
      CHECK((finite(dresidual, sum_type) && finite(partial)));
      CHECK((input == NormInput::kEmbedding || finite(dx, type)));
    }
  }

  /// Every second row has tokens, and the last has none.
  void embedding_scatter() const {
    constexpr int64_t kTableRows = 7;
    const Floats gradient = floats(rows * columns);
    Integers tokens, starts = {0};
    for (int64_t row = 0; row < kTableRows; ++row) {
      const int64_t kind = row / 2;
      for (int64_t t = kind; row % 2 == 0 && kind < 3 && t < rows; t += 3) tokens.push_back(t);
      starts.push_back(static_cast<int64_t>(tokens.size()));
    }
    Results table(static_cast<size_t>(kTableRows * columns) * bytes_of(type), '\x7F');
    Floats scratch(static_cast<size_t>(columns));
    const EmbeddingScatter arguments{.type = type,
                                     .columns = columns,
                                     .first_column = 0,
                                     .last_column = columns,
                                     .gradient = gradient.data(),
                                     .tokens = tokens.data(),
                                     .starts = starts.data(),
                                     .table = table.data(),
                                     .scratch = scratch.data(),
                                     .stream = stream};
    kernels().embedding_scatter(arguments, 0, kTableRows);
    CHECK(finite(table, type));
    Results parts(table.size(), '\x7F');  // rows and columns in two parts each
    for (const bool second : {false, true}) {
      EmbeddingScatter part = arguments;
      part.table = parts.data();
      part.stream = false;  // streaming takes whole rows
      (second ? part.first_column : part.last_column) = columns / 2;
      Floats narrow(static_cast<size_t>(part.last_column - part.first_column));
      part.scratch = narrow.data();
      kernels().embedding_scatter(part, 0, 3);
      kernels().embedding_scatter(part, 3, kTableRows);
    }
    CHECK(parts == table);
  }

  void cross_entropy() const {
    Bytes logits = matrix();
    const int64_t classes = columns > 2 ? columns - 2 : columns;
    const Integers labels = integers(rows, classes);
    Floats logsumexp(static_cast<size_t>(rows)), loss(logsumexp);
    const CrossEntropy arguments{.type = type,
                                 .stride = columns,
                                 .num_classes = classes,
                                 .logits = logits.data(),
                                 .labels = labels.data(),
                                 .logsumexp = logsumexp.data(),
                                 .loss = loss.data(),
                                 .scale = 0.5F};
    kernels().cross_entropy(arguments, 0, rows);
    CHECK((finite(logsumexp) && finite(loss)));
    kernels().cross_entropy_backward(arguments, 0, rows);
    CHECK(finite(logits, type));
  }

  void dropout() const {
    const Bytes x = matrix();
    const Integers keys = integers(rows, rows + 1);
    Results y(x.size(), '\x7F'), again(y);
    std::vector<uint8_t> kept(static_cast<size_t>(rows * kept_bytes(columns)));
    Floats scratch(static_cast<size_t>(scratch_columns(columns)));
    Dropout arguments{.type = type,
                      .columns = columns,
                      .x = x.data(),
                      .y = y.data(),
                      .mask = mask(keys),
                      .scratch = scratch.data(),
                      .stream = stream};
    arguments.mask.kept = kept.data();
    kernels().dropout(arguments, 0, rows);
    arguments.mask.drawn = true;
    arguments.y = again.data();
    kernels().dropout(arguments, 0, rows);
    CHECK(y == again);
  }

  /// The last of two heads of `columns`, so that the last row ends with the buffer.
  void attention() const {
    const int64_t hidden = 2 * columns;
    const Bytes qkv = numbers(type, rows * 3 * hidden), grad = numbers(type, rows * hidden);
    Bytes out(grad.size()), dqkv(qkv.size());
    const Integers keys = integers(rows, rows + 1);
    Floats logsumexp(static_cast<size_t>(rows)), scratch(static_cast<size_t>(attention_scratch(rows, columns)));
    const size_t head = static_cast<size_t>(columns) * bytes_of(type);
    const Attention arguments{.type = type,
                              .length = rows,
                              .head_size = columns,
                              .hidden = hidden,
                              .qkv = qkv.data() + head,
                              .out = out.data() + head,
                              .logsumexp = logsumexp.data(),
                              .grad = grad.data() + head,
                              .dqkv = dqkv.data() + head,
                              .scale = 0.1F,
                              .mask = mask(keys),
                              .scratch = scratch.data()};
    kernels().attention(arguments);
    CHECK((finite(out, type) && finite(logsumexp)));
    kernels().attention_backward(arguments);
    CHECK(finite(dqkv, type));
  }
};

TEST_CASE("The CPU's vector loops stay inside their buffers", "[unit]") {
  const std::string best = kernels().name;
  for (const char* name : {"plain", "avx2", "avx512", "avx512_bf16", "amx"}) {
    if (!choose_kernels(name)) continue;
    for (const Type type : {Type::kFloat, Type::kBFloat16, Type::kHalf}) {
      for (const int64_t columns : {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 100}) {
        for (const int64_t rows : {1, 3, 4, 5, 9, 17}) {
          INFO(name << " type " << static_cast<int>(type) << " rows " << rows << " columns " << columns);
          for (const bool stream : {false, true}) {
            if (stream && columns * static_cast<int64_t>(bytes_of(type)) % kStreamAlign != 0) continue;
            const Case test{type, rows, columns, stream};
            for (const bool tanh : {true, false}) test.bias_gelu(tanh);
            for (const auto input : {NormInput::kPlain, NormInput::kResidual, NormInput::kEmbedding})
              test.layer_norm(input);
            test.embedding_scatter();
            test.cross_entropy();
            test.dropout();
            test.attention();
          }
        }
      }
    }
  }
  REQUIRE(choose_kernels(best.c_str()));
}

}  // namespace
}  // namespace bert::simd
