// KServe's protocol of version 2, which Triton's clients speak: any model, with texts as tensors of BYTES.
//
// Note [Binary tensors]
//
// With the field Inference-Header-Content-Length the JSON of a body has that many bytes, and the data of tensors follow
// it in the order of the inputs, each as long as its parameter binary_data_size. Answers have the same form where the
// request asks for it. A text of BYTES is its length, 4 bytes little-endian, and its bytes; FP32 is little-endian.
// Source: "Binary Tensor Data Extension" of the protocol.
#pragma once

#include "app/serve/protocols/protocol.h"

namespace bert {

/// GET /v2.
ServerResponse kserve_server(const Call& call);
/// GET /v2/health/live, and /v2/health/ready: 503 until all models are loaded.
ServerResponse kserve_live(const Call& call);
ServerResponse kserve_ready(const Call& call);
/// GET /v2/models/NAME: its inputs and outputs; /v2/models/NAME/ready; /v2/models/NAME/config: Triton's configuration.
ServerResponse kserve_model(const Call& call);
ServerResponse kserve_model_ready(const Call& call);
ServerResponse kserve_config(const Call& call);
/// POST /v2/repository/index of Triton: all models, or with {"ready": true} those that are loaded.
ServerResponse kserve_index(const Call& call);
/// POST /v2/models/NAME/infer. The output of embedding is FP32 [N, D], that of rerank FP32 [N, 1]; that of other tasks
/// is BYTES [N], the JSON of `bert predict`.
ServerResponse kserve_infer(const Call& call);

/// {"error": reason}; 400 in the place of 422.
ServerResponse kserve_refusal(const HttpError& error);

}  // namespace bert
