#pragma once

namespace bert {

/// Kills the process (SIGKILL) when BERT_FAIL_POINT is `name`, `name:n` or `name:n@rank` and this is the first or n-th
/// time `name` is reached, in the process whose RANK that is or in any: how tests stop a run at one exact place. Names:
/// checkpoint.write .fsync .manifest .rename .renamed .latest .prune, train.step, and every phase of set_phase()
/// (app/system/error_report.h).
void fail_point(const char* name);

/// Throws UsageError when BERT_FAIL_POINT is set to something that fail_point() would never reach: a test that is not
/// killed where it asks to be would pass for the wrong reason.
void check_fail_point();

}  // namespace bert
