#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace draftscope::fit {

/// How a fit talks to whoever waits for it. Both may be empty.
struct Hooks {
    std::function<void(double fraction, const std::string& what)> progress;  ///< fraction < 0 = unknown
    std::function<bool()> cancelled;

    void report(double fraction, const std::string& what) const {
        if (progress) progress(fraction, what);
    }
    /// Asked between steps; nothing is written after it fails.
    Status check() const {
        if (cancelled && cancelled())
            return Error{ErrorKind::cancelled, "fit cancelled; nothing was written"};
        return {};
    }
};

}  // namespace draftscope::fit
