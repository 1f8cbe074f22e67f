// Work in which other processes take part: each lane is a thread that runs its works one after another. What comes
// after such a work waits for it, and hangs if it hangs.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>

#include "tests/null_device/runtime/state.h"

namespace null_device {
namespace {

struct Running {
  Position position;
  Place place;
  std::function<void(const std::atomic<bool>&)> run;
};
struct Lane {
  std::deque<std::shared_ptr<Running>> queue;
  std::atomic<bool> aborted{false};
};

/// The state of this file. Its mutex is never taken together with lock().
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, Lane*> lanes;
  std::vector<std::shared_ptr<Running>> running;
};
State& state() {
  static auto* instance = new State;
  return *instance;
}

/// True from the collective of this process on that NULL_DEVICE_HANG names: the device never gets through it.
bool hangs() {
  static const int64_t first = number_setting("NULL_DEVICE_HANG", 0);
  static std::atomic<int64_t> number{0};
  return first > 0 && ++number >= first;
}

bool any_running(const Covers& covers) {
  for (const std::shared_ptr<Running>& each : state().running) {
    if (covers(each->position)) return true;
  }
  return false;
}

void run_lane(Lane* lane) {
  for (;;) {
    std::shared_ptr<Running> next;
    {
      std::unique_lock held(state().mutex);
      state().changed.wait(held, [&] { return !lane->queue.empty(); });
      next = lane->queue.front();
      lane->queue.pop_front();
    }
    {
      const RunsQueued queued(next->place);
      next->run(lane->aborted);
    }
    {
      const std::lock_guard held(state().mutex);
      std::erase(state().running, next);
    }
    state().changed.notify_all();
  }
}

}  // namespace

bool is_running(const Covers& covers) {
  const std::lock_guard held(state().mutex);
  return any_running(covers);
}
void wait_until_done(const Covers& covers) {
  std::unique_lock held(state().mutex);
  state().changed.wait(held, [&] { return !any_running(covers); });
}
void wait_before(const Stream& stream) {
  Covers before;
  {
    const Lock held = lock();
    before = [id = stream.id, after = stream.after](const Position& p) {
      return p.stream == id || after.covers(p.stream, p.number);
    };
  }
  wait_until_done(before);
}

void enqueue_collective(CUstream_st* handle, const void* key, Work work,
                        std::function<void(const std::atomic<bool>& aborted)> run) {
  add_count("collective");
  Stream& stream = *stream_of(handle);
  if (stream.graph != nullptr) {
    work.run = [run] {
      static const std::atomic<bool> never{false};
      run(never);
    };
    return enqueue(handle, std::move(work));
  }
  auto self = std::make_shared<Running>();
  self->place = here();
  const std::lock_guard turn(stream.turn);
  {
    const Lock held = lock();
    for (const Access& access : work.accesses) check_live(access, work.name);
    check_device(stream, work);
    self->position = advance(stream, work, self->place);
    // It starts when the works that it comes after are done.
    self->run = [run = std::move(run), own = self->position, after = stream.after,
                 hang = hangs()](const std::atomic<bool>& aborted) {
      constexpr std::chrono::milliseconds kPause(10);
      while (hang && !aborted) std::this_thread::sleep_for(kPause);
      wait_until_done([&](const Position& p) {
        return p.stream == own.stream ? p.number < own.number : after.covers(p.stream, p.number);
      });
      run(aborted);
    };
  }
  const std::lock_guard held(state().mutex);
  Lane*& lane = state().lanes[key];
  if (lane == nullptr) {
    lane = new Lane;
    std::thread(run_lane, lane).detach();
  }
  state().running.push_back(self);
  lane->queue.push_back(std::move(self));
  state().changed.notify_all();
}

void abort_lane(const void* key) {
  const std::lock_guard held(state().mutex);
  if (const auto lane = state().lanes.find(key); lane != state().lanes.end()) lane->second->aborted = true;
}

}  // namespace null_device
