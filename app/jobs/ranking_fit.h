#pragma once

#include <string>

#include "app/jobs/fit_job.h"
#include "engine/fit/ranking.h"
#include "engine/fit/text_split.h"
#include "engine/fit/trace_texts.h"

/// Token rankings: counted, judged on text they have not seen, written.
namespace draftscope {

/// Token counts of the target's generations: of all texts, of those a fit learns from, of those held out.
struct TextCounts {
    explicit TextCounts(int vocab) : all(vocab), learnt(vocab), held_out(vocab) {}
    fit::TokenCounter all, learnt, held_out;
};
TextCounts count_traces(const fit::Traces& traces, fit::HoldOut hold_out);

/// The file ranks all of the text; the report says what a ranking of nine tenths covers of the rest.
void describe_ranking(const fit::Ranking& ranking, const TextCounts& counts, FitReport& report);

/// To config.out; `source` says what was counted.
Status write_ranking(const FitConfig& config, const fit::Ranking& ranking, const std::string& target,
                     const std::string& tokenizer, const std::string& source);

/// FR-Spec: token counts of raw text, line by line, with the target's tokenizer.
Status fit_text_ranking(const FitConfig& config, const FitHooks& hooks, FitReport& report);

}  // namespace draftscope
