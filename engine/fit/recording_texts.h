#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/fit/collect.h"
#include "engine/recording/recording.h"

namespace draftscope::fit {

/// One or more recordings of one target.
using Recordings = std::vector<std::shared_ptr<const DecodeRecording>>;

/// Opens the folders. If none is given or their targets differ, that is bad_input.
Result<Recordings> open_recordings(std::span<const std::string> folders);

/// The turns of all recordings. `aux_layers` are those that the drafter reads; a recording without them is
/// bad_input.
Result<std::unique_ptr<TextSource>> make_recording_texts(Recordings recordings,
                                                         std::span<const int> aux_layers);

}  // namespace draftscope::fit
