#pragma once

#include <string_view>

#include "engine/round/device_spans.h"
#include "engine/round/layout.h"
#include "engine/round/results.h"

namespace draftscope {

/// One step of rounds, from its plan to what it brings back. Trees are drafted, verified and accepted in its
/// memory, on the backend; the host waits once.
struct RoundStep {
    kernels::Backend* backend = nullptr;
    RoundPlan plan;
    RoundMemory memory;
    RoundLayout layout;
    RoundResults results;
    DeviceSpans spans;

    /// Starts the step of `plan`. Returns an error that names `what` if out of memory.
    Status begin(kernels::Backend& on, std::string_view what) {
        backend = &on;
        memory.begin(on);
        if (!layout.lay_out(on, memory, plan)) return out_of_memory(what);
        results.begin(layout);
        return {};
    }
    /// Returns an error that names `what` if a request for memory was refused since begin().
    Status check_memory(std::string_view what) const {
        return memory.enough() ? Status() : out_of_memory(what);
    }
    Error out_of_memory(std::string_view what) const {
        return backend->out_of_memory(what, "use a smaller batch or tree");
    }
};

}  // namespace draftscope
