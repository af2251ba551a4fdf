#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/record/span_collector.h"
#include "engine/sequence/decode_setup.h"
#include "engine/sequence/sequence.h"

namespace draftscope {

/// The objects shared by all parts of a session.
struct DecodeContext : DecodeSetup {
    explicit DecodeContext(DecodeSetup setup)
        : DecodeSetup(std::move(setup)),
          rule(rule_in_effect(options.rule, options.sampling.temperature)),
          spans(phases, output.run_start),
          records(output, spans),
          vocab(real_vocab(target)),
          active(std::make_shared<DraftVocab>(drafting_head(), vocab)) {}

    static int real_vocab(const Target& target) {
        const int rows = target.config().vocab;
        return target.tokenizer() == nullptr ? rows : std::min(rows, target.tokenizer()->size());
    }
    /// The head that drafts; null if the drafter uses none.
    LmHead* drafting_head() const { return drafter.uses_head() ? head : nullptr; }
    TextLimits limits() const {
        return {options.ignore_eos ? nullptr : target.tokenizer(), options.max_new, target.config().context};
    }
    int aux_width() const { return static_cast<int>(drafter.aux_layers().size()) * target.config().hidden; }
    /// Width of the features that the drafter reads of a slot; 0 = none.
    int feature_width() const { return drafter.needs_hidden() ? target.config().hidden : aux_width(); }
    /// Whether nodes and what the target says of them are recorded.
    bool records_nodes() const { return records.on() && options.record_nodes; }
    /// Time that the gate stopped the engine since the last call. Records the intervals.
    TimeNs take_paused_ns() {
        records.pauses(gate.take_pauses());
        return gate.take_paused_ns();
    }
    /// Logits of rows [first, first + count) of the latest step, without padding columns. They are
    /// downloaded, so call it only for rows that are read in full.
    Rows<const float> download_logits(int first, int count) {
        const Rows<const float> rows = logits.download(first, count);
        return {rows.data, count, vocab, rows.stride};
    }

    RulePtr rule;  ///< the acceptance rule in effect
    SpanCollector spans;
    CaptureEmitter records;
    int vocab;                           ///< number of real token ids
    std::shared_ptr<DraftVocab> active;  ///< only for a head without state
    ForwardOutput forward;               ///< of the latest prefill
    TargetLogits logits;                 ///< of the latest step
    LogitsResult target_results;         ///< about them
    bool sampled = true;                 ///< whether the current step records its spans
    TimeNs full_draft_ns = 0;            ///< time of the latest calibration round's drafts; 0 = none yet
};

}  // namespace draftscope
