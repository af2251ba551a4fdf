#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "capture/record.h"
#include "engine/decode/session.h"

namespace draftscope::testing {

/// Keeps every record, in order.
class RecordList : public RecordSink {
  public:
    void push(Record record) override {
        const std::lock_guard lock(mutex_);
        records_.push_back(std::move(record));
    }
    std::vector<Record> take() {
        const std::lock_guard lock(mutex_);
        return std::move(records_);
    }
    template <typename T>
    static std::vector<T> of(const std::vector<Record>& records) {
        std::vector<T> found;
        for (const Record& record : records)
            if (const T* one = std::get_if<T>(&record)) found.push_back(*one);
        return found;
    }

  private:
    std::mutex mutex_;
    std::vector<Record> records_;
};

struct DecodeCase {
    std::string drafter = "eagle2";
    std::string head = "full";
    std::string tree = "depth=3,topk=4,nodes=12";
    int threads = 1;
    double temperature = 0;
    int batch = 1;
    std::string verify = "match";
    int max_new = 40;
    bool ignore_eos = false;
    int warmup_steps = 2;
    int calibration_rounds = 0;
    std::vector<std::string> shadows = {};  ///< self-paced shadow heads
    TimeNs full_shadow_ns = 0;
    bool record_nodes = true;
    std::string acceptance = "real";
    std::uint64_t seed = 7;
    double top_p = 1.0;
    int top_k = 0;
    int span_interval = 1;
};
std::string to_text(const DecodeCase& setting);

/// A feed of prompts that keeps their outcomes.
class PromptList : public PromptFeed {
  public:
    explicit PromptList(const std::vector<std::vector<TokenId>>& prompts,
                        const std::function<void(std::string_view)>& on_text = {});
    std::optional<PromptInput> next() override;
    void text(const PromptInput& prompt, std::string_view piece) override;
    void done(const PromptInput& prompt, PromptOutcome outcome) override;

    std::map<int, PromptOutcome> outcomes;  ///< by index in the list
    std::vector<int> ended;                 ///< prompts in the order in which they ended

  private:
    const std::vector<std::vector<TokenId>>& prompts_;
    std::function<void(std::string_view)> on_text_;
    std::size_t next_ = 0;
};

/// A target and what a decode session needs. Drafters, heads and thread pools are created on first use and
/// kept.
class DecodeFixture {
  public:
    /// `drafter_folders` has the checkpoint folder of each drafter id.
    DecodeFixture(std::unique_ptr<Target> target, std::map<std::string, std::string> drafter_folders,
                  std::string ranking_path);

    /// If `on` is null, the weights are packed for this CPU.
    static std::unique_ptr<Target> build(ModelFile file, kernels::Precision precision,
                                         kernels::Backend* on = nullptr);
    /// Runs everything on `exec`, whatever the setting's threads. Call first; `exec` must outlive the
    /// fixture.
    void run_on(kernels::Backend& exec) { on_ = &exec; }

    Target& target() { return *target_; }
    kernels::Backend& exec(int threads);
    Drafter& drafter(const std::string& spec);
    /// Makes `spec` name this drafter.
    void use_drafter(const std::string& spec, std::unique_ptr<Drafter> drafter) {
        drafters_[spec] = std::move(drafter);
    }
    LmHead& head(const std::string& spec, Drafter& drafter);
    /// Like head(), but returns the error.
    Status prepare_head(const std::string& spec, Drafter& drafter);
    DebugGate& gate() { return gate_; }
    /// Sets the listener of the phases of later runs; null = none.
    void listen(RangeSink* listener) { listener_ = listener; }
    /// Sets the artefact of heads `id`; "rdk" = the affinity of the suffix.
    void use_artefact(const std::string& id, const std::string& path) { artefacts_[id] = path; }

    /// Decodes the prompts in one session, `batch` at a time, and returns the outcomes in their order. An
    /// error is a test failure. `sink` null = nothing is recorded.
    std::vector<PromptOutcome> decode(const DecodeCase& setting,
                                      const std::vector<std::vector<TokenId>>& prompts,
                                      RecordSink* sink = nullptr,
                                      const std::function<void(std::string_view)>& on_text = {});
    const DecodeTotals& totals() const { return totals_; }
    /// Returns the error of a run over a feed, or "no error".
    Error run(const DecodeCase& setting, PromptFeed& feed, RecordSink* sink = nullptr);
    Error decode_error(const DecodeCase& setting, const std::vector<TokenId>& prompt);

  private:
    static std::string name_of(const std::string& head, const Drafter& drafter);
    std::unique_ptr<DecodeSession> open(const DecodeCase& setting, RecordSink* sink, PhaseRecorder& phases);

    std::unique_ptr<Target> target_;
    std::map<std::string, std::string> drafter_folders_;
    std::string ranking_path_;
    std::map<std::string, std::string> artefacts_;  ///< by head id
    kernels::Backend* on_ = nullptr;
    std::map<std::string, std::unique_ptr<Drafter>> drafters_;
    std::map<std::string, std::unique_ptr<LmHead>> heads_;
    RowIds ids_;
    DebugGate gate_;
    RangeSink* listener_ = nullptr;
    DecodeTotals totals_;
};

}  // namespace draftscope::testing
