#include "app/retrieval/trec_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/text_parts.h"
#include "data/text/text_input.h"

namespace bert {
namespace {

constexpr std::string_view kSpaces = " \t\r\v\f";

/// The parts of a line between white space; one more than `parts` holds counts as too many.
template <size_t N>
size_t split_at_spaces(std::string_view line, std::array<std::string_view, N>& parts) {
  size_t count = 0;
  for (size_t at = line.find_first_not_of(kSpaces); at != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSpaces, at), line.size());
    if (count == N) return N + 1;
    parts[count++] = line.substr(at, end - at);
    at = line.find_first_not_of(kSpaces, end);
  }
  return count;
}

}  // namespace

std::vector<Ranking> read_trec_run(const std::string& path) {
  enum { kQuery, kIteration, kDocument, kRank, kScore, kTag, kParts };
  const MappedFile file(path);
  check_is_plain_text(path, file.view());
  std::vector<Ranking> rankings;
  std::unordered_map<std::string, size_t> places;
  std::vector<std::unordered_set<std::string>> seen;
  std::string_view rest = file.view();
  for (int64_t number = 1; !rest.empty(); ++number) {
    std::array<std::string_view, kParts> part;
    const std::string_view line = take_part(rest, '\n');
    const size_t count = split_at_spaces(line, part);
    if (count == 0) continue;
    const std::string place = fmt::format("{}:{}", path, number);
    if (count != kParts) {
      throw DataError(fmt::format("{}: want \"qid Q0 docid rank score tag\", got {} parts: \"{}\"", place,
                                  count > kParts ? "more" : std::to_string(count), line.substr(0, 60)));
    }
    const auto score = number_of<double>(part[kScore]);
    if (!score || !std::isfinite(*score))
      throw DataError(fmt::format("{}: want a number as the score, got \"{}\"", place, part[kScore]));
    const auto [found, is_new] = places.try_emplace(std::string(part[kQuery]), rankings.size());
    if (is_new) {
      rankings.push_back({.query = found->first, .documents = {}});
      seen.emplace_back();
    }
    std::string document(part[kDocument]);
    if (!seen[found->second].insert(document).second)
      throw DataError(fmt::format("{}: query {} has the document {} twice", place, found->first, document));
    rankings[found->second].documents.push_back({std::move(document), *score});
  }
  file.expect_whole();
  if (rankings.empty()) throw DataError(path + ": has no rankings; expected lines \"qid Q0 docid rank score tag\"");
  for (Ranking& ranking : rankings) {
    std::stable_sort(ranking.documents.begin(), ranking.documents.end(),
                     [](const RankedDocument& a, const RankedDocument& b) { return a.score > b.score; });
  }
  return rankings;
}

void write_trec_run(const std::string& path, const std::vector<Ranking>& rankings, const std::string& tag) {
  constexpr size_t kPartBytes = 1 << 20;
  const auto checked = [&path](const std::string& id) -> const std::string& {
    if (id.empty() || id.find_first_of(" \t\r\n\v\f") != std::string::npos)
      throw DataError(fmt::format("{}: the id \"{}\" has white space or is empty, which a run cannot hold", path, id));
    return id;
  };
  AtomicFile file(path);
  std::string text;
  for (const Ranking& ranking : rankings) {
    size_t rank = 0;
    for (const RankedDocument& document : ranking.documents) {
      text += fmt::format("{} Q0 {} {} {} {}\n", checked(ranking.query), checked(document.id), ++rank,
                          static_cast<float>(document.score), tag);
    }
    if (text.size() < kPartBytes) continue;
    file.write(text);
    text.clear();
  }
  file.write(text);
  file.commit();
}

std::vector<RankedDocument> without_query(const Ranking& ranking, const Judgments& judgments, size_t most) {
  const auto* relevant = judgments.of(ranking.query);
  const bool keep = relevant != nullptr && relevant->contains(ranking.query);
  std::vector<RankedDocument> documents;
  for (const RankedDocument& document : ranking.documents) {
    if (documents.size() < most && (keep || document.id != ranking.query)) documents.push_back(document);
  }
  return documents;
}

std::vector<TaskMetric> score_rankings(const std::vector<Ranking>& rankings, const Judgments& judgments,
                                       const std::string& prefix, const RankingCutoffs& cutoffs) {
  RankingMetrics metrics(cutoffs);
  const auto most = static_cast<size_t>(cutoffs.largest());
  for (const Ranking& ranking : rankings) {
    const auto* relevant = judgments.of(ranking.query);
    if (relevant == nullptr) continue;
    std::vector<bool> hits;
    for (const RankedDocument& document : without_query(ranking, judgments, most))
      hits.push_back(relevant->contains(document.id));
    metrics.add(hits, std::ssize(*relevant));
  }
  return metrics.means(prefix);
}

int64_t add_missing_rankings(std::vector<Ranking>& rankings, const Judgments& judgments) {
  std::unordered_set<std::string> ranked;
  for (const Ranking& ranking : rankings) ranked.insert(ranking.query);
  int64_t missing = 0;
  for (const std::string& query : judgments.queries) {
    if (ranked.contains(query)) continue;
    rankings.push_back({.query = query, .documents = {}});
    ++missing;
  }
  return missing;
}

}  // namespace bert
