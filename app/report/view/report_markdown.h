// A report as Markdown, for a pull request.
#pragma once

#include <string>
#include <vector>

#include "app/report/view/report_data.h"

namespace bert {

/// A table of the last figures of each run with a curve of the loss as text, and a table of the keys in which their
/// configurations differ. Texts from files stand in code spans, so that none is read as markup.
std::string report_markdown(const std::vector<ReportedRun>& runs);

}  // namespace bert
