// The outputs of a fine-tuned classifier in the order of other labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/inference/pretrained.h"

namespace bert {

/// The labels of a model and the wanted ones: kSame: they were equal. kByName: they had one order each. kByPosition: they
/// have no name in common, as LABEL_0 and "entailment", so that each output was given the wanted label of its number.
enum class LabelMatch : uint8_t { kSame, kByName, kByPosition };

/// Gives the head of `model` the order of `wanted`, and its labels these names. Upper and lower case are the same. Throws
/// DataError for another number of labels, and if some names are common and others are not.
LabelMatch order_labels(Pretrained& model, const std::vector<std::string>& wanted);

}  // namespace bert
