#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/fit/collect.h"
#include "engine/recording/recording.h"

namespace draftscope::fit {

/// One or more recordings of one target.
using Traces = std::vector<std::shared_ptr<const Trace>>;

/// Opens the folders. If none is given or their targets differ, that is bad_input.
Result<Traces> open_traces(std::span<const std::string> folders);

/// The turns of all recordings. `aux_layers` are those that the drafter reads; a recording without them is
/// bad_input.
Result<std::unique_ptr<TextSource>> make_trace_texts(Traces traces, std::span<const int> aux_layers);

}  // namespace draftscope::fit
