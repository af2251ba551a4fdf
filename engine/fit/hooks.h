#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace draftscope::fit {

/// Callbacks for progress and cancellation. Both may be empty.
struct Hooks {
    std::function<void(double fraction, const std::string& what)> progress;  ///< fraction < 0 = unknown
    std::function<bool()> cancelled;

    void report(double fraction, const std::string& what) const {
        if (progress) progress(fraction, what);
    }
    /// Called between steps. Returns an error if cancelled; nothing is written after that.
    Status check() const {
        if (cancelled && cancelled())
            return Error{ErrorKind::cancelled, "fit cancelled; nothing was written"};
        return {};
    }
};

}  // namespace draftscope::fit
