#pragma once

#include "capture/record.h"

namespace draftscope {

/// Sink between engine and recorder that adds the NVTX ranges of other libraries after each step. The ranges
/// come from our injection library. If another capture is active or a tool is attached, it only forwards.
class NvtxRowSink : public RecordSink {
  public:
    NvtxRowSink(RecordSink& next, RowId run_id, TimeNs run_start);
    ~NvtxRowSink() override;
    void push(Record record) override;
    /// Call after the engine's last record.
    void finish();

  private:
    void collect();

    RecordSink& next_;
    RowId run_id_;
    TimeNs run_start_;
    bool capturing_;
};

}  // namespace draftscope
