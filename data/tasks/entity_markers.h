// The two entities of a text whose relation is asked for, as tokens around them.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/tasks/task_sequence.h"
#include "data/tokenizer/vocabulary.h"

namespace bert {

/// Begin and end of the first entity, and of the second. Source: Soares et al. 2019; their use in R-BERT and BioBERT's
/// successors.
inline constexpr std::array<const char*, 4> kEntityMarkers = {"[E1]", "[/E1]", "[E2]", "[/E2]"};

/// `text` with markers around its spans: a list of two [start, end] or {"start", "end"}, in characters, of which the first
/// is the first entity. Throws DataError for other values, and for spans that are empty or not in the text.
std::string marked_text(std::string_view text, const nlohmann::json& spans);

/// `text` with kEntityMarkers in place of <e1>, </e1>, <e2> and </e2>, as SemEval-2010 task 8 has them.
std::string with_markers(std::string text);

/// [CLS] A [SEP] of a text with one of each marker; start and end position are the tokens [E1] and [E2]. `ids` beyond the
/// room of max_seq_length are left out evenly at both ends of the entities, and if these lie too far apart, between them;
/// `cut` is then set. Throws DataError if a marker is missing or there twice, and for an entity that is too long.
TaskSequence marked_sequence(const std::vector<int32_t>& ids, const Vocabulary& vocabulary, int64_t max_seq_length,
                             bool& cut);

}  // namespace bert
