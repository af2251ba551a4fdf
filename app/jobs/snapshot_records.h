#pragma once

#include <string>

#include "base/result.h"
#include "capture/capture.h"
#include "capture/record.h"

namespace draftscope {

/// Replays a snapshot as the records it was made of, run by run: what "save a copy" writes to a file.
void push_snapshot(const Snapshot& snapshot, RecordSink& sink);

/// Writes a capture file of the snapshot's rows. The file appears under its name when it is complete; one
/// that was there before stays as it is until then.
Status save_snapshot(const Snapshot& snapshot, const std::string& path);

}  // namespace draftscope
