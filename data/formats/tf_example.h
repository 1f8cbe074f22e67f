// tf.Example, the protocol buffer message in Google's TFRecords of pre-training examples.
#pragma once

#include <string>
#include <string_view>

#include "data/formats/padded_example.h"

namespace bert {

/// Appends the serialized message to `bytes`. Features and encoding (packed lists, order) are those that Google's
/// create_pretraining_data.py writes. `padded` must have weights.
void append_tf_example(const PaddedExample& padded, std::string& bytes);

/// Reads a serialized message. Features may have any order, and the names of TensorFlow's later models
/// (input_word_ids, input_type_ids); other features are ignored. Throws DataError if the message is malformed, or if a
/// feature is absent, of another type, or there twice.
void parse_tf_example(std::string_view bytes, PaddedExample& padded);

}  // namespace bert
