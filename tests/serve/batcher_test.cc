#include "app/serve/queue/batcher.h"

#include <atomic>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "app/http/types.h"
#include "tests/serve/fake_model.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::FakeModel;
using bert::testing::FakeText;
using Strings = std::vector<std::string>;

namespace {

constexpr std::chrono::seconds kLong(60);

/// Asks with one token a text, and returns the texts of the answers, or the error.
Strings ask(Batcher& batcher, const Strings& texts, std::chrono::milliseconds patience = kLong) {
  ModelTexts encoded;
  for (const std::string& text : texts) encoded.push_back(std::make_shared<FakeText>(text, 1));
  Strings result;
  try {
    for (const auto& answer : batcher.ask(encoded, Batcher::Clock::now() + patience))
      result.push_back(answer->as_hugging_face().get<std::string>());
  } catch (const HttpError& error) {
    return {std::to_string(error.status), error.what()};
  } catch (const std::exception& error) {
    return {error.what()};
  }
  return result;
}

/// Asks on a thread of its own, after all texts that wait already are in the queue.
std::future<Strings> ask_later(Batcher& batcher, const Strings& texts) {
  const int64_t before = batcher.queued_texts();
  auto result = std::async(std::launch::async, [&batcher, texts] { return ask(batcher, texts); });
  while (batcher.queued_texts() < before + static_cast<int64_t>(texts.size())) std::this_thread::yield();
  return result;
}

}  // namespace

TEST_CASE("Texts of all requests that wait are one batch, and each request gets its own answers", "[unit][serve]") {
  FakeModel model;
  Batcher batcher(model, {}, 1);
  model.set_open(false);
  auto first = std::async(std::launch::async, [&] { return ask(batcher, {"first"}); });
  model.wait_for_calls(1);
  auto second = ask_later(batcher, {"a", "b", "c"});
  auto third = ask_later(batcher, {"d"});
  CHECK(batcher.queued_texts() == 4);
  CHECK(batcher.queued_tokens() == 4);
  model.set_open(true);
  CHECK(first.get() == Strings{"first"});
  CHECK(second.get() == Strings{"a", "b", "c"});
  CHECK(third.get() == Strings{"d"});
  // One text of each request in turn.
  CHECK(model.batches() == std::vector<Strings>{{"first"}, {"a", "d", "b", "c"}});
  CHECK(batcher.queued_texts() == 0);
  CHECK(batcher.queued_tokens() == 0);
}

TEST_CASE("A batch has at most its tokens, and a long request does not hold up a short one", "[unit][serve]") {
  FakeModel model;
  std::vector<BatchDone> done;
  {
    Batcher batcher(model, {.max_batch_tokens = 3}, 1, [&](const BatchDone& one) { done.push_back(one); });
    model.set_open(false);
    auto first = std::async(std::launch::async, [&] { return ask(batcher, {"first"}); });
    model.wait_for_calls(1);
    auto longer = ask_later(batcher, {"1", "2", "3", "4", "5", "6"});
    auto other = ask_later(batcher, {"a", "b", "c"});
    auto single = ask_later(batcher, {"x"});
    model.set_open(true);
    CHECK(longer.get() == Strings{"1", "2", "3", "4", "5", "6"});
    CHECK(other.get() == Strings{"a", "b", "c"});
    CHECK(single.get() == Strings{"x"});
  }
  CHECK(model.batches() == std::vector<Strings>{{"first"}, {"1", "a", "x"}, {"2", "b", "3"}, {"c", "4", "5"}, {"6"}});
  REQUIRE(done.size() == 5);
  CHECK(done[1].texts == 3);
  CHECK(done[1].tokens == 3);
}

TEST_CASE("A text that is longer than a batch is computed alone", "[unit][serve]") {
  FakeModel model;
  Batcher batcher(model, {.max_batch_tokens = 3}, 1);
  const auto answers = batcher.ask(
      {std::make_shared<FakeText>("a", 2), std::make_shared<FakeText>("long", 9), std::make_shared<FakeText>("b", 2)},
      Batcher::Clock::now() + kLong);
  CHECK(answers.size() == 3);
  CHECK(model.batches() == std::vector<Strings>{{"a"}, {"long"}, {"b"}});
}

TEST_CASE("A broken model fails the requests of its batch alone", "[unit][serve]") {
  FakeModel model;
  Batcher batcher(model, {}, 1);
  model.set_open(false);
  auto first = std::async(std::launch::async, [&] { return ask(batcher, {"first"}); });
  model.wait_for_calls(1);
  auto with_it = ask_later(batcher, {"a", "b"});
  auto broken = ask_later(batcher, {"broken", "c"});
  model.set_open(true);
  CHECK(first.get() == Strings{"first"});
  CHECK(with_it.get() == Strings{"the model is broken"});
  CHECK(broken.get() == Strings{"the model is broken"});
  CHECK(ask(batcher, {"after"}) == Strings{"after"});
}

TEST_CASE("A full queue refuses with 429, a late answer with 503, and both leave the queue right", "[unit][serve]") {
  FakeModel model;
  Batcher batcher(model, {.max_queue_tokens = 3}, 1);
  model.set_open(false);
  auto first = std::async(std::launch::async, [&] { return ask(batcher, {"first"}); });
  model.wait_for_calls(1);
  auto second = ask_later(batcher, {"a", "b"});
  const Strings full = ask(batcher, {"c", "d"});
  CHECK(full == Strings{"429", "the queue is full: 2 tokens wait, the request has 2, and at most 3 may wait"});
  try {
    batcher.ask({std::make_shared<FakeText>("c", 9)}, Batcher::Clock::now() + kLong);
    FAIL("the queue took 9 tokens");
  } catch (const HttpError& error) {
    REQUIRE(error.fields.size() == 1);
    CHECK(error.fields[0] == HttpField{"Retry-After", "1"});
  }
  CHECK(ask(batcher, {"late"}, std::chrono::milliseconds(20)).front() == "503");
  CHECK(batcher.queued_tokens() == 2);
  model.set_open(true);
  CHECK(second.get() == Strings{"a", "b"});
  CHECK(ask(batcher, {"c", "d", "e"}) == Strings{"c", "d", "e"});
  for (const Strings& batch : model.batches()) CHECK(std::count(batch.begin(), batch.end(), "late") == 0);
}

TEST_CASE("The end of a batcher answers what is computed and refuses what waits", "[unit][serve]") {
  FakeModel model;
  Batcher batcher(model, {}, 1);
  model.set_open(false);
  auto first = std::async(std::launch::async, [&] { return ask(batcher, {"first"}); });
  model.wait_for_calls(1);
  auto second = ask_later(batcher, {"a"});
  auto end = std::async(std::launch::async, [&] { batcher.end(); });
  CHECK(second.get() == Strings{"503", "the server is ending"});
  model.set_open(true);
  end.get();
  CHECK(first.get() == Strings{"first"});
  CHECK(ask(batcher, {"b"}) == Strings{"503", "the server is ending"});
}

TEST_CASE("Clients that have just been answered are waited for, for a part of their batch's time", "[unit][serve]") {
  FakeModel model;
  Batcher batcher(model, {.return_share = 1e6}, 1);
  model.set_open(false);
  auto first = std::async(std::launch::async, [&] { return ask(batcher, {"first"}); });
  model.wait_for_calls(1);
  auto second = ask_later(batcher, {"a"});
  auto third = ask_later(batcher, {"b"});
  model.set_open(true);
  CHECK(first.get() == Strings{"first"});
  CHECK(second.get() == Strings{"a"});
  CHECK(third.get() == Strings{"b"});
  auto again = ask_later(batcher, {"c"});  // the last batch had two
  CHECK(ask(batcher, {"d"}) == Strings{"d"});
  CHECK(again.get() == Strings{"c"});
  CHECK(model.batches() == std::vector<Strings>{{"first"}, {"a", "b"}, {"c", "d"}});
}

TEST_CASE("A batch has the whole processor while it is alone", "[unit][serve]") {
  FakeModel model;
  Batcher batcher(model, {.max_batch_tokens = 1}, 2);
  CHECK(ask(batcher, {"alone"}) == Strings{"alone"});
  model.set_open(false);
  auto both = std::async(std::launch::async, [&] { return ask(batcher, {"first", "second"}); });
  model.wait_for_calls(2);
  model.set_open(true);
  CHECK(both.get() == Strings{"first", "second"});
  CHECK(ask(batcher, {"broken"}) == Strings{"the model is broken"});
  CHECK(ask(batcher, {"again"}) == Strings{"again"});
  CHECK(model.shares() == std::vector<int64_t>{1, 1, 2, 1, 1});
}

TEST_CASE("Many threads and several workers get every answer once", "[unit][serve]") {
  FakeModel model;
  std::atomic<int64_t> texts{0};
  constexpr int kThreads = 16, kRequests = 50;
  std::atomic<int> wrong{0};
  {
    Batcher batcher(model, {.max_batch_tokens = 7}, 3, [&](const BatchDone& done) { texts += done.texts; });
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kRequests; ++i) {
          Strings request;
          for (int j = 0; j <= i % 4; ++j) request.push_back(std::to_string(thread * 1000 + i * 10 + j));
          if (ask(batcher, request) != request) ++wrong;
        }
      });
    }
  }
  CHECK(wrong == 0);
  CHECK(texts == kThreads * (13 * 1 + 13 * 2 + 12 * 3 + 12 * 4));
}
