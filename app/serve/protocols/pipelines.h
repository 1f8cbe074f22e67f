// The paths in the shapes of `bert predict` and of Hugging Face's pipelines.
#pragma once

#include "app/serve/protocols/protocol.h"

namespace bert {

/// The answer to `body` at POST /predict: the objects of `bert predict`.
ServerResponse own_answers(const Call& call, nlohmann::json body);

/// The same at POST /models/NAME, in the shapes of Hugging Face's inference API.
ServerResponse hugging_face_answers(const Call& call, nlohmann::json body);

/// POST /tokenize: the tokens that the model reads.
ServerResponse tokens_of_texts(const Call& call);

}  // namespace bert
