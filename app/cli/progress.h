#pragma once

#include <string>

#include "base/units.h"

namespace draftscope::cli {

/// A progress bar on stderr, or a line now and then if stderr is no terminal. Writes nothing to stdout.
class ProgressBar {
  public:
    explicit ProgressBar(bool wanted, TimeNs line_interval = 60 * ns_per_s);
    ~ProgressBar();
    /// fraction < 0 = unknown.
    void update(double fraction, const std::string& what);
    void clear();

  private:
    bool active_;
    bool terminal_;
    bool drawn_ = false;
    TimeNs line_interval_;
    TimeNs last_;
};

}  // namespace draftscope::cli
