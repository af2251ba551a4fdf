#pragma once

#include <string>

#include "base/result.h"
#include "capture/capture.h"
#include "capture/record.h"

namespace draftscope {

/// Pushes the records that a snapshot consists of, run by run. Used to save a copy.
void push_snapshot(const Snapshot& snapshot, RecordSink& sink);

/// Writes a snapshot to a capture file atomically: an existing file is replaced only when the new one is
/// complete.
Status save_snapshot(const Snapshot& snapshot, const std::string& path);

}  // namespace draftscope
