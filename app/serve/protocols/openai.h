// The paths of OpenAI's API that a server of embeddings has.
#pragma once

#include "app/serve/protocols/protocol.h"

namespace bert {

/// POST /v1/embeddings. Vectors have the length 1, as there.
ServerResponse openai_embeddings(const Call& call);

/// GET /v1/models and /v1/models/NAME.
ServerResponse openai_models(const Call& call);
ServerResponse openai_model(const Call& call);

/// {"error": {"message", "type", "param", "code"}}; 400 in the place of 422.
ServerResponse openai_refusal(const HttpError& error);

}  // namespace bert
