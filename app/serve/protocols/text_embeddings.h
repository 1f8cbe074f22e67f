// The paths of Hugging Face's text-embeddings-inference.
#pragma once

#include "app/serve/protocols/protocol.h"

namespace bert {

/// POST /: what the server is for: embed_texts(), rank_texts(), or hugging_face_answers(); with "raw_scores" the labels of
/// predict_texts().
ServerResponse embed_root(const Call& call);
/// POST /predict: all labels of a text or a pair, or of a batch of them; without a classifier, and for a body with
/// "parameters" or with objects as inputs, own_answers().
ServerResponse predict_texts(const Call& call);
/// POST /models/NAME: hugging_face_answers(), or similar_sentences() for the body of sentence similarity.
ServerResponse named_answers(const Call& call);
/// POST /embed: a list of vectors.
ServerResponse embed_texts(const Call& call);
/// POST /embed_all: for each text the vectors of its tokens.
ServerResponse embed_tokens(const Call& call);
/// POST /similarity: the cosines of one sentence with others.
ServerResponse similar_sentences(const Call& call);
/// POST /rerank, also with the body of cohere_rerank().
ServerResponse rank_texts(const Call& call);
/// GET /info.
ServerResponse served_info(const Call& call);

/// {"error": reason, "error_type"}: 400 for NothingAsked, 413 for a text without an answer, 424 where the model has failed.
ServerResponse embed_refusal(const HttpError& error);

}  // namespace bert
