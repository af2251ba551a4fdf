#pragma once

#include <memory>
#include <utility>

#include "capture/capture.h"
#include "capture/record.h"

namespace draftscope {

/// Applies records to a capture in memory.
struct CollectedCapture final : RecordSink {
    Capture capture;
    void push(Record record) override { capture.apply(record); }
    std::shared_ptr<const Snapshot> snapshot() const {
        return std::make_shared<const Snapshot>(capture.snapshot(1));
    }
};

}  // namespace draftscope
