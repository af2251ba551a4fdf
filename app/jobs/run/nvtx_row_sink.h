#pragma once

#include "app/jobs/run/step_row_sink.h"

namespace draftscope {

/// Adds the NVTX ranges of other libraries after each step. The ranges come from our injection library. If
/// another capture is active or a tool is attached, it only forwards.
class NvtxRowSink : public StepRowSink {
  public:
    NvtxRowSink(RecordSink& next, RowId run_id, TimeNs run_start);
    ~NvtxRowSink() override;
    void finish() override;

  private:
    void after_step() override {
        if (capturing_) collect();
    }
    void collect();

    bool capturing_;
};

}  // namespace draftscope
