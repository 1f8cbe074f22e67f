// The batch type that data, model and cuda_ext share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bert {

/// Bits of a dropout key that hold the position: Note [Dropout keys], philox.h. Sequences are shorter than 2^16.
inline constexpr int kDropoutKeyPositionBits = 16;
constexpr int64_t dropout_key(int64_t sequence, int64_t position) {
  return sequence << kDropoutKeyPositionBits | position;
}
constexpr int64_t sequence_of_dropout_key(int64_t key) { return key >> kDropoutKeyPositionBits; }

/// A batch of sequences laid end to end without padding between them. T tokens, B sequences, M masked tokens; a static
/// batch ends in some that no result depends on (Note [Static batches] in data/loader/batch_plan.h). Integer tensors are
/// int64 unless stated; all tensors live on one device.
struct PackedBatch {
  at::Tensor input_ids;             // [T]
  at::Tensor token_type_ids;        // [T]
  at::Tensor position_ids;          // [T], from 0 in every sequence
  at::Tensor dropout_keys;          // [T], dropout_key(number of the sequence, position in it)
  at::Tensor cu_seqlens;            // [B + 1] int32, cu_seqlens[0] = 0, cu_seqlens[B] = T
  int64_t max_seqlen = 0;           // longest sequence
  int64_t first_sequence = 0;       // number of the first sequence, counted from 0 over the whole run
  int64_t source = 0;               // of embeddings: the data set that all sequences are from
  at::Tensor masked_positions;      // [M], rows of the packed batch (0 .. T - 1), ascending
  at::Tensor masked_ids;            // [M], the original ids at those rows
  at::Tensor masked_sources;        // [M], the source of each masked token; undefined unless sources are told apart
  at::Tensor next_sentence_labels;  // [B], 1: the second segment is random (NSP) or stands before the first in the text
                                    // (sentence order); undefined: no pairs
  at::Tensor
      labels;  // of fine-tuning, by the kind of its head: classes [B] or values [B] fp32 of sequences; classes of
               // tokens [T], -100: none; first and last token of answers [B, 2]; choices [N] of N questions with
               // B / N sequences each; values [N] fp32 of rows of embeddings, likewise; 0 or 1 of independent labels
               // [B, labels] fp32; undefined in pre-training
  at::Tensor counted;  // [2] fp32: the masked tokens and the sequences that are no padding; undefined: all
  struct Padding {
    int64_t tokens = 0, sequences = 0, masked = 0;
  };
  Padding padding;  // of a static batch, at the ends of its tensors
  at::Tensor
      windows;  // [N, W], of N texts that are sequences, their windows, in a row: the sequences of each text, and
                // -1 behind its last; labels then have N for B. Undefined: a sequence is a text

  /// Calls visit(tensor) for every tensor of `self`, which is a PackedBatch or a const PackedBatch.
  template <class Self, class Visitor>
  static void visit_tensors(Self& self, Visitor&& visit) {
    visit(self.input_ids);
    visit(self.token_type_ids);
    visit(self.position_ids);
    visit(self.dropout_keys);
    visit(self.cu_seqlens);
    visit(self.masked_positions);
    visit(self.masked_ids);
    visit(self.masked_sources);
    visit(self.next_sentence_labels);
    visit(self.labels);
    visit(self.counted);
    visit(self.windows);
  }

  /// This batch on `device`. Copies from pinned memory are asynchronous. Undefined tensors stay undefined.
  [[nodiscard]] PackedBatch to(at::Device device) const {
    PackedBatch result = *this;
    visit_tensors(result, [device](at::Tensor& tensor) {
      if (tensor.defined()) tensor = tensor.to(device, /*non_blocking=*/true);
    });
    return result;
  }

  // With padding:
  [[nodiscard]] int64_t num_tokens() const { return input_ids.numel(); }
  [[nodiscard]] int64_t num_sequences() const { return cu_seqlens.numel() - 1; }
  [[nodiscard]] int64_t num_masked() const { return masked_positions.numel(); }
};

}  // namespace bert
