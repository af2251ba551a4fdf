#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "capture/record.h"

namespace draftscope {

/// A sink between engine and recorder. It forwards every record, and adds rows of its own after each step.
class StepRowSink : public RecordSink {
  public:
    StepRowSink(RecordSink& next, RowId run_id, TimeNs run_start)
        : next_(next), run_id_(run_id), run_start_(run_start) {}
    void push(Record record) final {
        const auto* step = std::get_if<StepRecord>(&record);
        const bool ended = step != nullptr;
        if (ended) add_step(step->step);
        next_.push(std::move(record));
        if (ended) after_step();
    }
    /// Call after the engine's last record. Pushes the remaining rows and the losses.
    virtual void finish() = 0;

  protected:
    /// Called for each step, before and after it is forwarded.
    virtual void add_step(const StepRow&) {}
    virtual void after_step() = 0;
    TimeNs now() const { return std::max<TimeNs>(0, monotonic_ns() - run_start_); }
    void push_loss(const char* kind, std::uint64_t count) {
        if (count > 0) next_.push(LossRow{run_id_, now(), kind, static_cast<std::int64_t>(count)});
    }

    RecordSink& next_;
    RowId run_id_;
    TimeNs run_start_;
};

}  // namespace draftscope
