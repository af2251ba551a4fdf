#pragma once

#include "capture/capture.h"
#include "capture/record.h"

namespace draftscope {

/// Replays a snapshot as the records it was made of, run by run: what "save a copy" writes to a file.
void push_snapshot(const Snapshot& snapshot, RecordSink& sink);

}  // namespace draftscope
