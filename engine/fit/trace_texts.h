#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/fit/collect.h"
#include "engine/replay/trace.h"

namespace draftscope::fit {

/// Recorded traces of one target, one or more.
using Traces = std::vector<std::shared_ptr<const Trace>>;

/// Opens the folders; bad_input when none is given or their targets differ.
Result<Traces> open_traces(std::span<const std::string> folders);

/// The turns of the traces, one trace after the other. `aux_layers` are those the drafter reads; a trace
/// without them is bad_input.
Result<std::unique_ptr<TextSource>> make_trace_texts(Traces traces, std::span<const int> aux_layers);

}  // namespace draftscope::fit
