#include "app/distributed/rank_zero.h"

#include <thread>

#include "app/distributed/rank_lines.h"
#include "app/system/errors.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr const char* kDone = "done";

/// The text or the error of `work`: a line with kDone or the type of the error, then the text or the message.
std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return std::string(kDone) + "\n" + work();
  } catch (const ConfigError& error) {
    return std::string("ConfigError\n") + error.what();
  } catch (const DataError& error) {
    return std::string("DataError\n") + error.what();
  } catch (const InputMissing& error) {
    return std::string("InputMissing\n") + error.what();
  } catch (const IoError& error) {
    return std::string("IoError\n") + error.what();
  }
}

}  // namespace

std::string on_rank(const ProcessGroupPtr& group, const Announcement& announcement,
                    const std::function<std::string()>& work) {
  if (!group) return work();
  const std::string outcome = announced(group, announcement, [&] { return outcome_of(work); });
  const size_t end = outcome.find('\n');
  const std::string type = outcome.substr(0, end), text = outcome.substr(end + 1);
  if (type == kDone) return text;
  if (get_rank(group) == 0) std::this_thread::sleep_for(Pace(get_world_size(group)).linger_for_looks);
  if (type == "ConfigError") throw ConfigError(text);
  if (type == "DataError") throw DataError(text);
  if (type == "InputMissing") throw InputMissing(text);
  throw IoError(text);
}

std::string on_rank_zero(const ProcessGroupPtr& group, const std::string& name, int64_t timeout_seconds,
                         const std::function<std::string()>& work) {
  return on_rank(group, {.rank = 0, .name = name, .timeout_seconds = timeout_seconds}, work);
}

}  // namespace bert
