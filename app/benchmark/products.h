// The matrix products of an encoder layer, timed alone.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "model/config.h"

namespace bert {

/// Times the twelve products of a layer with so many tokens in `dtype`: of query, key and value in one, of attention's
/// output, of the intermediate layer and of the output, each forward, backward to the input and backward to the weight.
/// Rows with product, pass, rows, columns, inner (of the sum), ms (the shortest time) and tflops.
nlohmann::ordered_json benchmark_products(const BertConfig& config, int64_t tokens, c10::Device device,
                                          c10::ScalarType dtype);

}  // namespace bert
