#pragma once

#include <string>

#include "app/jobs/fit/fit_job.h"
#include "engine/fit/ranking.h"
#include "engine/fit/recording_texts.h"
#include "engine/fit/samples.h"

/// Counts token rankings, evaluates them on held-out text and writes them.
namespace draftscope {

/// Token counts of the target's generations: all texts, training texts, held-out texts.
struct TextCounts {
    explicit TextCounts(int vocab) : all(vocab), learnt(vocab), held_out(vocab) {}
    fit::TokenCounter all, learnt, held_out;
};
/// Counts the tokens of recordings. Ids from `vocab` on do not count.
TextCounts count_recordings(const fit::Recordings& recordings, int vocab, fit::HoldOut hold_out);

/// Fills in the report. The file ranks all texts; the report gives the coverage of the held-out tenth by a
/// ranking of the other nine.
void describe_ranking(const fit::Ranking& ranking, const TextCounts& counts, FitReport& report);

/// Writes a ranking to config.out. `source` describes the counted text.
Status write_ranking(const FitConfig& config, const fit::Ranking& ranking, const std::string& target,
                     const std::string& tokenizer, const std::string& source);

/// FR-Spec: counts the tokens of raw text, line by line, with the target's tokenizer.
Status fit_text_ranking(const FitConfig& config, const JobHooks& hooks, FitReport& report);

}  // namespace draftscope
