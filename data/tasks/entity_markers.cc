#include "data/tasks/entity_markers.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/io/error.h"
#include "data/io/text_parts.h"
#include "data/tasks/span_json.h"

namespace bert {
namespace {

enum Marker : size_t { kBeginFirst, kEndFirst, kBeginSecond, kEndSecond };

/// The places of the markers among the tokens.
std::array<int64_t, 4> find_markers(const std::vector<int32_t>& ids, const Vocabulary& vocabulary) {
  std::array<int64_t, 4> places{};
  for (size_t i = 0; i < kEntityMarkers.size(); ++i) {
    const int32_t id = vocabulary.find(kEntityMarkers[i]);
    if (id < 0) throw DataError(fmt::format("the vocabulary has no token {}", kEntityMarkers[i]));
    if (const auto count = std::ranges::count(ids, id); count != 1)
      throw DataError(fmt::format("want one {} in the text, got {}", kEntityMarkers[i], count));
    places[i] = std::ranges::find(ids, id) - ids.begin();
  }
  if (places[kEndFirst] < places[kBeginFirst] || places[kEndSecond] < places[kBeginSecond])
    throw DataError("an entity ends before it begins");
  return places;
}

}  // namespace

std::string marked_text(std::string_view text, const nlohmann::json& spans) {
  if (!spans.is_array() || spans.size() != 2) throw DataError("want a list of two spans, [[start, end], [start, end]]");
  const CharacterPlaces characters(text);
  std::array<std::pair<size_t, const char*>, 4> marks;  // byte and marker; of one place, ends stand first
  for (size_t i = 0; i < spans.size(); ++i) {
    const TextSpan span = characters.bytes_of(span_of_json(spans[i]));
    marks[i] = {static_cast<size_t>(span.end), kEntityMarkers[2 * i + 1]};
    marks[2 + i] = {static_cast<size_t>(span.begin), kEntityMarkers[2 * i]};
  }
  std::ranges::stable_sort(marks, {}, &std::pair<size_t, const char*>::first);
  std::string marked;
  size_t at = 0;
  for (const auto& [place, marker] : marks) {
    marked += text.substr(at, place - at);
    marked += marker;
    at = place;
  }
  return marked.append(text.substr(at));
}

std::string with_markers(std::string text) {
  if (text.find('<') == std::string::npos) return text;
  constexpr std::array<const char*, 4> kTags = {"<e1>", "</e1>", "<e2>", "</e2>"};
  for (size_t i = 0; i < kTags.size(); ++i) text = replaced(std::move(text), kTags[i], kEntityMarkers[i]);
  return text;
}

TaskSequence marked_sequence(const std::vector<int32_t>& ids, const Vocabulary& vocabulary, int64_t max_seq_length,
                             bool& cut) {
  const std::array<int64_t, 4> places = find_markers(ids, vocabulary);
  const auto [first, last] = std::ranges::minmax(places);
  const int64_t room = max_seq_length - 2, all = std::ssize(ids), between = last + 1 - first;
  int64_t begin = std::clamp<int64_t>(first - (room - between) / 2, 0, std::max<int64_t>(all - room, 0));
  int64_t head = room, tail = 0;  // tokens from `begin` on, and before the end of the entities
  cut |= all > room;
  if (between > room) {
    begin = first;
    head = room / 2;
    tail = room - head;
  }
  TaskSequence sequence;
  std::vector<int32_t>& kept = sequence.input_ids;
  kept.push_back(vocabulary.cls_id());
  std::vector<int64_t> sources = {-1};  // of each kept token its place among the ids
  const auto keep = [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      kept.push_back(ids[static_cast<size_t>(i)]);
      sources.push_back(i);
    }
  };
  keep(begin, std::min(all, begin + head));
  keep(last + 1 - tail, last + 1);
  kept.push_back(vocabulary.sep_id());
  sequence.token_type_ids.assign(kept.size(), 0);
  for (const int64_t place : places) {
    if (std::ranges::find(sources, place) == sources.end())
      throw DataError(
          fmt::format("the entities have more tokens than data.max_seq_length {} leaves room for", max_seq_length));
  }
  sequence.start_position = static_cast<int32_t>(std::ranges::find(sources, places[kBeginFirst]) - sources.begin());
  sequence.end_position = static_cast<int32_t>(std::ranges::find(sources, places[kBeginSecond]) - sources.begin());
  return sequence;
}

}  // namespace bert
