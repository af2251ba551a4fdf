#pragma once

#include <string>
#include <vector>

#include "base/rng.h"
#include "capture/capture.h"
#include "capture/record.h"
#include "tests/support/capture_builder.h"

/// Random valid captures for the storage tests. Every table has rows, and all references are valid.
namespace draftscope::testing {

struct CaptureShape {
    int runs = 2;
    int prompts = 3;
    int steps_per_run = 12;
    int batch = 2;
    bool ended = true;
    int span_interval = 1;  ///< steps from one with spans to the next
};

class RandomCapture {
  public:
    RandomCapture(std::uint64_t seed, CaptureShape shape) : rng_(seed), shape_(shape) {}
    std::vector<Record> records();

  private:
    void run(const std::string& head);
    void step(int ordinal);
    RoundRecord round(RowId prompt_id, int tokens_before);
    std::vector<SpanRow> spans(TimeNs start, TimeNs end);
    void tree(RoundRecord& record);
    int below(int n) { return static_cast<int>(rng_.below(static_cast<std::uint32_t>(n))); }
    float real() { return static_cast<float>(rng_.uniform()); }

    Rng rng_;
    CaptureShape shape_;
    RecordBuilder rows_;
    std::shared_ptr<const Vocab> vocab_;
    std::vector<Record> out_;
    RunRow run_;
    std::vector<PromptRow> prompts_;
    std::vector<int> rounds_of_prompt_;
    TimeNs now_ = 0;
    RowId previous_step_ = 0;
};

/// Returns the snapshot that a live recorder would make of the records.
Snapshot apply_all(const std::vector<Record>& records);
/// Reports every difference of two snapshots to gtest, except `source` and `version`.
void expect_equal(const Snapshot& a, const Snapshot& b);

}  // namespace draftscope::testing
