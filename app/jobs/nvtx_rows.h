#pragma once

#include "capture/record.h"

namespace draftscope {

/// Between the engine and the recorder: passes every record on and adds the NVTX ranges of other libraries
/// that our injection saw, after each step. Where somebody captures already, or a tool listens, it only
/// passes on.
class NvtxRowSink : public RecordSink {
  public:
    NvtxRowSink(RecordSink& next, RowId run_id, TimeNs run_start);
    ~NvtxRowSink() override;
    void push(Record record) override;
    /// After the last record of the engine.
    void finish();

  private:
    void collect();

    RecordSink& next_;
    RowId run_id_;
    TimeNs run_start_;
    bool capturing_;
};

}  // namespace draftscope
