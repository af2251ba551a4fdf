#pragma once

#include <algorithm>
#include <utility>

#include "engine/decode/draft_vocab.h"
#include "engine/decode/sequence.h"
#include "engine/decode/session.h"
#include "engine/record/capture_emitter.h"
#include "engine/record/span_collector.h"

namespace draftscope {

/// The objects shared by all parts of a session.
struct DecodeContext {
    DecodeContext(Target& target_in, Drafter& drafter_in, LmHead* head_in, LmHead* full_head_in,
                  kernels::Backend& backend_in, DecodeOptions options_in, CaptureOutput capture_output,
                  PhaseRecorder& phases_in, DebugGate& gate_in)
        : target(target_in),
          drafter(drafter_in),
          head(head_in),
          full_head(full_head_in),
          backend(backend_in),
          options(options_in),
          rule(rule_in_effect(options.rule, options.sampling.temperature)),
          phases(phases_in),
          gate(gate_in),
          spans(phases_in, capture_output.run_start),
          records(std::move(capture_output), spans),
          vocab(real_vocab(target_in)),
          active(drafting_head(), vocab) {}

    static int real_vocab(const Target& target) {
        const int rows = target.config().vocab;
        return target.tokenizer() == nullptr ? rows : std::min(rows, target.tokenizer()->size());
    }
    /// The head that drafts; null if the drafter uses none.
    LmHead* drafting_head() const { return drafter.uses_head() ? head : nullptr; }
    TextLimits limits() const {
        return {options.ignore_eos ? nullptr : target.tokenizer(), options.max_new, target.config().context};
    }
    /// Width of the features that the drafter reads of a slot; 0 = none.
    int feature_width() const {
        const int d = target.config().hidden;
        return drafter.needs_hidden() ? d : static_cast<int>(drafter.aux_layers().size()) * d;
    }
    /// Time that the gate stopped the engine since the last call. Records the intervals.
    TimeNs take_paused_ns() {
        records.pauses(gate.take_pauses());
        return gate.take_paused_ns();
    }
    /// Keeps rows first + rows[i] of the latest forward pass for the drafter.
    void store_features(Sequence& sequence, int first, std::span<const int> rows) {
        const int d = target.config().hidden;
        sequence.store_features(backend, forward, first, rows, drafter.needs_hidden() ? d : 0,
                                static_cast<int>(drafter.aux_layers().size()) * d);
    }
    /// Logits of rows [first, first + count) of the latest step, without padding columns. They are
    /// downloaded, so call it only for rows that are read in full.
    Rows<const float> download_logits(int first, int count) {
        const Rows<const float> rows = logits.download(first, count);
        return {rows.data, count, vocab, rows.stride};
    }

    Target& target;
    Drafter& drafter;
    LmHead* head;
    LmHead* full_head;
    kernels::Backend& backend;
    DecodeOptions options;
    RulePtr rule;  ///< the acceptance rule in effect
    PhaseRecorder& phases;
    DebugGate& gate;
    SpanCollector spans;
    CaptureEmitter records;
    int vocab;                 ///< number of real token ids
    DraftVocab active;         ///< only for a head without state
    ForwardOutput forward;     ///< of the latest prefill
    TargetLogits logits;       ///< of the latest step
    LogitsResult answers;      ///< about them
    bool sampled = true;       ///< whether the current step records its spans
    TimeNs full_draft_ns = 0;  ///< time of the latest calibration round's drafts; 0 = none yet
};

}  // namespace draftscope
