// The paths in the shapes of `bert predict` and of Hugging Face's pipelines.
#pragma once

#include "app/serve/protocols/protocol.h"

namespace bert {

/// POST /predict: the objects of `bert predict`.
ServerResponse own_answers(const Call& call);

/// POST /models/NAME: the same in the shapes of Hugging Face's inference API.
ServerResponse hugging_face_answers(const Call& call);

/// POST /tokenize: the tokens that the model reads.
ServerResponse tokens_of_texts(const Call& call);

}  // namespace bert
