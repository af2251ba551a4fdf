#pragma once

#include <functional>
#include <string>

namespace draftscope {

/// Callbacks of a job that blocks its caller. Both may be empty.
struct JobHooks {
    std::function<void(double fraction, const std::string& what)> on_progress;  ///< fraction < 0 = unknown
    std::function<bool()> cancelled;

    void report(double fraction, const std::string& what) const {
        if (on_progress) on_progress(fraction, what);
    }
    bool is_cancelled() const { return cancelled && cancelled(); }
};

}  // namespace draftscope
