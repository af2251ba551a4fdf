#pragma once

#include <memory>

#include "engine/fit/collect.h"
#include "engine/replay/trace.h"

namespace draftscope::fit {

/// The turns of a recorded trace. `aux_layers` are those the drafter reads; a trace without them is
/// bad_input.
Result<std::unique_ptr<TextSource>> make_trace_texts(std::shared_ptr<const Trace> trace,
                                                     std::span<const int> aux_layers);

}  // namespace draftscope::fit
