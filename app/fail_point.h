#pragma once

namespace bert {

/// Kills the process (SIGKILL) when BERT_FAIL_POINT is `name` or `name:n` and this is the first or n-th time `name` is
/// reached: how tests stop a run at one exact place. Names: checkpoint.write .fsync .manifest .rename .renamed .latest
/// .prune, train.step.
void fail_point(const char* name);

}  // namespace bert
