#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace draftscope {

/// Callbacks of a job that blocks its caller. Both may be empty.
struct JobHooks {
    std::function<void(double fraction, const std::string& what)> on_progress;  ///< fraction < 0 = unknown
    std::function<bool()> cancelled;

    void report(double fraction, const std::string& what) const {
        if (on_progress) on_progress(fraction, what);
    }
    /// Called between the steps of a job that then writes nothing. Returns an error if cancelled.
    Status check() const {
        if (is_cancelled()) return Error{ErrorKind::cancelled, "cancelled; nothing was written"};
        return {};
    }
    bool is_cancelled() const { return cancelled && cancelled(); }
};

}  // namespace draftscope
