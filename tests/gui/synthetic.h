#pragma once

#include <string>
#include <vector>

#include "base/phase.h"
#include "base/rng.h"
#include "capture/capture.h"
#include "tests/support/capture_builder.h"

/// A synthetic decode with plausible trees, tokens, phase times and head evaluations, for tests without an
/// engine. The same seed gives the same capture.
namespace draftscope::test {

struct SyntheticOptions {
    std::uint64_t seed = 7;
    RowId run_id = 1;
    std::string head = "fr-spec:v=8192";
    std::string drafter = "eagle2";
    std::string category = "writing";
    int levels = 4;  ///< depth of the tree
    int topk = 4;
    int nodes = 12;
    bool full_reference = true;  ///< self-paced rows of the full head
};

class SyntheticRun {
  public:
    explicit SyntheticRun(SyntheticOptions options = {});

    /// Applies the run, the vocabulary, the prompt and the first token.
    void begin(Capture& capture);
    /// Applies one step of one round. Returns false at the end of the text, after ending the run.
    bool advance(Capture& capture);
    /// Returns the round in flight after `level` was drafted.
    LiveRound live_round(int level);
    void end(Capture& capture, RunEnd how);
    bool ended() const { return ended_; }
    int rounds() const { return rounds_; }

  private:
    PromptRow prompt_row() const;
    PromptProgress progress() const;
    StepRecord make_step();
    void add_nodes(RoundRecord& round, int accepted);
    void add_spans(StepRecord& step);
    void add_level_spans(StepRecord& step, int level);
    void span(StepRecord& step, Phase phase, int level, double us, int rows, std::int64_t bytes);
    void add_head_evals(RoundRecord& round);
    TokenId random_token();

    SyntheticOptions options_;
    Rng rng_;
    std::shared_ptr<Vocab> vocab_;
    std::vector<TokenId> output_;
    std::size_t position_ = 1;  ///< generated tokens so far
    TimeNs now_ = 0;
    testing::RecordBuilder rows_;
    RowId prompt_id_ = 1;
    int rounds_ = 0;
    bool ended_ = false;
};

/// Returns a finished run of at most `rounds` rounds.
std::shared_ptr<const Snapshot> synthetic_snapshot(int rounds, SyntheticOptions options = {});

}  // namespace draftscope::test
