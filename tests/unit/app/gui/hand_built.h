#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capture/capture.h"

/// Hand-written captures for tests of the window's models.
namespace draftscope::test {

/// Builds one run with steps of one round each. The vocabulary is the given words, ranked in this order.
class HandBuilt {
  public:
    explicit HandBuilt(std::vector<std::string> words = {}, bool ranked = true, RowId run_id = 1) {
        RunStarted started;
        started.run.id = run_id;
        started.run.head = "fr-spec:v=4";
        started.run.vocab_id = run_id;
        run_id_ = run_id;
        auto vocab = std::make_shared<Vocab>();
        vocab->id = run_id;
        for (std::size_t i = 0; i < words.size(); ++i) {
            VocabRow row;
            row.vocab_id = run_id;
            row.token_id = static_cast<TokenId>(i);
            row.bytes = row.text = words[i];
            if (ranked) row.rank = static_cast<int>(i);
            vocab->rows.push_back(row);
        }
        started.vocab = vocab;
        capture_.apply(started);
    }
    void prompt(RowId id, std::string category = "") {
        PromptStarted started;
        started.prompt.id = id;
        started.prompt.run_id = run_id_;
        started.prompt.category = std::move(category);
        capture_.apply(started);
    }
    /// Adds a step from `start` to `end`; fills in the ids of round and spans.
    void step(RoundRecord round, std::vector<SpanRow> spans, TimeNs start, TimeNs end,
              Excluded excluded = Excluded::no, TimeNs paused = 0) {
        StepRecord record;
        const RowId id = ++step_id_;
        record.step.id = id;
        record.step.run_id = run_id_;
        record.step.ordinal = static_cast<int>(id);
        record.step.start_ns = start;
        record.step.end_ns = end;
        record.step.excluded = excluded;
        record.step.paused_ns = paused;
        round.round.id = id;
        round.round.run_id = run_id_;
        round.round.step_id = id;
        if (round.round.prompt_id == 0) round.round.prompt_id = 1;
        for (NodeRow& node : round.nodes) node.round_id = id;
        for (NodeTopRow& top : round.tops) top.round_id = id;
        for (TokenRow& token : round.tokens) {
            token.round_id = id;
            token.prompt_id = round.round.prompt_id;
        }
        for (HeadEvalRow& eval : round.head_evals) {
            eval.run_id = run_id_;
            eval.round_id = id;
        }
        for (SpanRow& span : spans) {
            span.id = ++span_id_;
            span.run_id = run_id_;
            span.step_id = id;
        }
        record.rounds.push_back(std::move(round));
        record.spans = std::move(spans);
        capture_.apply(record);
    }
    Capture& capture() { return capture_; }
    Snapshot snapshot() { return capture_.snapshot(++version_); }

  private:
    Capture capture_;
    RowId run_id_ = 1, step_id_ = 0, span_id_ = 0;
    std::uint64_t version_ = 0;
};

inline SpanRow span(int phase, TimeNs start, TimeNs end, int lane = 0, std::int64_t bytes = 0) {
    SpanRow row;
    row.phase_id = phase;
    row.start_ns = start;
    row.end_ns = end;
    row.lane = lane;
    row.bytes = bytes;
    return row;
}

inline NodeRow node(int number, int parent, int depth, TokenId token, double probability,
                    bool accepted = false) {
    NodeRow row;
    row.node = number;
    row.parent = parent;
    row.depth = depth;
    row.token_id = token;
    row.draft_logprob = static_cast<float>(std::log(probability));
    row.accepted = accepted;
    return row;
}

inline TokenRow token(TokenId id, int depth, bool covered = true, TokenSource source = TokenSource::draft) {
    TokenRow row;
    row.token_id = id;
    row.depth = depth;
    row.covered = covered;
    row.source = source;
    return row;
}

}  // namespace draftscope::test
