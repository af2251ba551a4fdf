#pragma once

#include <string>

#include "base/units.h"

namespace draftscope::cli {

/// A progress bar on stderr. Writes a line now and then if stderr is no terminal, or a dumb one.
class ProgressBar {
  public:
    explicit ProgressBar(bool wanted, TimeNs line_interval = 60 * ns_per_s);
    ~ProgressBar();
    /// fraction < 0 = unknown.
    void update(double fraction, const std::string& what);
    void clear();

  private:
    void draw(const std::string& line);

    bool active_;
    bool terminal_;
    std::size_t drawn_ = 0;  ///< columns of the drawn line
    TimeNs line_interval_;
    TimeNs last_;
};

/// Returns the bar's line, cut to fewer than `columns` columns.
std::string progress_line(double fraction, const std::string& what, std::size_t columns);

}  // namespace draftscope::cli
