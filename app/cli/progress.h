#pragma once

#include <string>

#include "base/units.h"

namespace draftscope::cli {

/// A progress bar on stderr if stderr is a terminal. Writes nothing to stdout.
class ProgressBar {
  public:
    explicit ProgressBar(bool wanted);
    ~ProgressBar();
    /// fraction < 0 = unknown.
    void update(double fraction, const std::string& what);
    void clear();

  private:
    bool active_;
    bool drawn_ = false;
    TimeNs last_ = 0;
};

}  // namespace draftscope::cli
