#include "app/jobs/run/nvtx_row_sink.h"

#include "base/clock.h"
#include "profiler/nvtx/nvtx_mirror.h"

namespace draftscope {

namespace {

/// Ranges of this domain mirror our phases, which the capture already contains as spans.
constexpr std::string_view draftscope_domain = "draftscope";

}  // namespace

NvtxRowSink::NvtxRowSink(RecordSink& next, RowId run_id, TimeNs run_start)
    : StepRowSink(next, run_id, run_start), capturing_(!nvtx_capturing() && !nvtx_tool_listens()) {
    if (!capturing_) return;
    nvtx_capture_take();  // discards ranges between runs
    nvtx_capture_lost();
    nvtx_capture_start();
}

NvtxRowSink::~NvtxRowSink() {
    if (capturing_) nvtx_capture_stop();
}

void NvtxRowSink::collect() {
    std::vector<NvtxRangeRow> rows;
    for (NvtxRange& range : nvtx_capture_take()) {
        if (range.domain == draftscope_domain) continue;
        rows.push_back({run_id_, std::move(range.domain), std::move(range.name),
                        static_cast<int>(range.thread_id), range.start_ns - run_start_,
                        range.end_ns - run_start_, static_cast<std::int64_t>(range.payload)});
    }
    if (!rows.empty()) next_.push(std::move(rows));
}

void NvtxRowSink::finish() {
    if (!capturing_) return;
    nvtx_capture_stop();
    capturing_ = false;
    collect();
    push_loss("nvtx_queue_full", nvtx_capture_lost());
}

}  // namespace draftscope
