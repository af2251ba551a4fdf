#include "app/gui/models/coverage.h"

#include <algorithm>
#include <cmath>

#include "app/gui/models/draft_tree.h"

namespace draftscope {
namespace {

constexpr int curve_points = 160;
constexpr double wanted_coverage = 0.99;

CoverageCurve curve_of(std::string label, const CoverageIndex::Counts& counts,
                       const std::vector<int>& sizes) {
    CoverageCurve curve;
    curve.label = std::move(label);
    curve.tokens = counts.emitted;
    std::int64_t held = 0;
    std::size_t rank = 0;
    for (const int v : sizes) {
        for (; rank < static_cast<std::size_t>(v) && rank < counts.by_rank.size(); ++rank)
            held += counts.by_rank[rank];
        curve.points.push_back(
            {static_cast<double>(v), static_cast<double>(held) / static_cast<double>(counts.emitted)});
    }
    return curve;
}

/// Bins of half an octave from rank 1 to the end of the vocabulary.
std::vector<RankBin> tail_bins(const CoverageIndex::Counts& counts, int vocab_size) {
    std::vector<RankBin> bins;
    double from = 1;
    for (int half_octave = 1; from <= vocab_size; ++half_octave) {
        const double to = std::floor(std::pow(2.0, half_octave / 2.0));
        if (to <= from) continue;
        RankBin bin{from, to, 0, 0};
        for (auto rank = static_cast<std::size_t>(from) - 1;
             rank + 1 < static_cast<std::size_t>(to) && rank < counts.by_rank.size(); ++rank) {
            bin.tokens += counts.by_rank[rank];
            bin.missed += counts.missed_by_rank[rank];
        }
        bins.push_back(bin);
        from = to;
    }
    return bins;
}

int least_size(const CoverageIndex::Counts& counts, double wanted) {
    std::int64_t held = 0;
    for (std::size_t rank = 0; rank < counts.by_rank.size(); ++rank) {
        held += counts.by_rank[rank];
        if (static_cast<double>(held) >= wanted * static_cast<double>(counts.emitted))
            return static_cast<int>(rank) + 1;
    }
    return 0;
}

std::vector<RoundToken> tokens_of_round(const Snapshot& snapshot, const Vocab* vocab, std::size_t round) {
    std::vector<RoundToken> tokens;
    const RoundEntry& entry = snapshot.rounds[round];
    const RunRow* run = snapshot.run(entry.row.run_id);
    for (std::uint32_t i = 0; i < entry.tokens.count; ++i) {
        const TokenRow& token = snapshot.tokens[entry.tokens.first + i];
        const std::optional<int> rank = token_rank(vocab, token);
        if (!rank) continue;
        tokens.push_back(
            {token.token_id, token_label(snapshot, run, token.token_id), *rank + 1.0, token.covered});
    }
    return tokens;
}

std::optional<LiveHeadMark> live_head(const Snapshot& snapshot, RowId run_id) {
    for (const HeadStats& stats : head_stats(snapshot, run_id))
        if (stats.mode == HeadMode::drive && stats.coverage)
            return LiveHeadMark{stats.head, stats.active_rows, *stats.coverage, stats.covered_mass,
                                is_dynamic_head(stats.head)};
    return std::nullopt;
}

}  // namespace

void CoverageIndex::add(Counts& counts, std::optional<int> rank, bool covered) {
    ++counts.emitted;
    if (covered) ++counts.covered;
    if (!rank || *rank < 0) return;
    ++counts.ranked;
    const auto at = static_cast<std::size_t>(*rank);
    if (at >= counts.by_rank.size()) {
        counts.by_rank.resize(at + 1, 0);
        counts.missed_by_rank.resize(at + 1, 0);
    }
    ++counts.by_rank[at];
    if (!covered) ++counts.missed_by_rank[at];
}

void CoverageIndex::update(const Snapshot& snapshot, RowId run_id) {
    const RunRow* run = snapshot.run(run_id);
    const TimeNs started = run == nullptr ? 0 : run->started_monotonic;
    if (run_id != run_id_ || started != started_ || snapshot.source != source_ ||
        snapshot.tokens.size() < seen_) {
        *this = CoverageIndex();
        run_id_ = run_id;
        started_ = started;
        source_ = snapshot.source;
    }
    if (run == nullptr) return;
    const Vocab* vocab = snapshot.vocab(run->vocab_id);
    for (; seen_ < snapshot.tokens.size(); ++seen_) {
        const TokenRow& token = snapshot.tokens[seen_];
        // The first token of a prompt comes from prefill: no head was asked for it.
        if (token.source == TokenSource::prefill) continue;
        const PromptRow* prompt = snapshot.prompt(token.prompt_id);
        if (prompt == nullptr || prompt->run_id != run_id) continue;
        const std::optional<int> rank = token_rank(vocab, token);
        add(all_, rank, token.covered);
        if (!prompt->category.empty()) add(by_category_[prompt->category], rank, token.covered);
    }
}

std::optional<int> token_rank(const Vocab* vocab, const TokenRow& token) {
    if (token.rank) return token.rank;
    if (vocab == nullptr || token.token_id < 0 ||
        static_cast<std::size_t>(token.token_id) >= vocab->rows.size())
        return std::nullopt;
    return vocab->rows[static_cast<std::size_t>(token.token_id)].rank;
}

bool is_dynamic_head(std::string_view head) {
    const std::string_view id = head.substr(0, head.find(':'));
    for (const std::string_view dynamic : {"coral", "dynaspec", "specvocab", "microspec", "rdk"})
        if (id == dynamic) return true;
    return false;
}

double coverage_at(const CoverageIndex::Counts& counts, int v) {
    if (counts.emitted == 0) return 0;
    std::int64_t held = 0;
    for (std::size_t rank = 0;
         rank < counts.by_rank.size() && rank < static_cast<std::size_t>(std::max(v, 0)); ++rank)
        held += counts.by_rank[rank];
    return static_cast<double>(held) / static_cast<double>(counts.emitted);
}

std::vector<int> log_sizes(int vocab_size, int points) {
    std::vector<int> sizes;
    const double top = std::log(static_cast<double>(std::max(vocab_size, 1)));
    for (int i = 0; i < points; ++i) {
        const double at = points > 1 ? static_cast<double>(i) / (points - 1) : 1.0;
        const int v =
            std::clamp(static_cast<int>(std::lround(std::exp(top * at))), 1, std::max(vocab_size, 1));
        if (sizes.empty() || v > sizes.back()) sizes.push_back(v);
    }
    return sizes;
}

CoverageModel build_coverage(const Snapshot& snapshot, const CoverageIndex& index,
                             std::optional<std::size_t> round_index) {
    CoverageModel model;
    const RunRow* run = snapshot.run(index.run_id());
    if (run == nullptr || index.all().emitted == 0) {
        model.empty_text = run == nullptr ? "No run yet. Coverage needs emitted tokens."
                                          : "No round has emitted a token yet.";
        return model;
    }
    const Vocab* vocab = snapshot.vocab(run->vocab_id);
    model.vocab_size = vocab == nullptr ? static_cast<int>(index.all().by_rank.size())
                                        : static_cast<int>(vocab->rows.size());
    model.live = live_head(snapshot, run->id);
    model.unranked = index.all().emitted - index.all().ranked;
    if (index.all().ranked == 0) {
        model.ranking_text =
            "No token ranking is known for this vocabulary, so there is no curve. fr-spec, pa-fr and "
            "vocabtrim "
            "bring one; a ranking can be fitted from raw text.";
        return model;
    }
    model.vocab_size = std::max(model.vocab_size, static_cast<int>(index.all().by_rank.size()));
    const std::vector<int> sizes = log_sizes(model.vocab_size, curve_points);
    model.curves.push_back(curve_of("all", index.all(), sizes));
    if (index.by_category().size() > 1)
        for (const auto& [category, counts] : index.by_category())
            model.curves.push_back(curve_of(category, counts, sizes));
    model.tail = tail_bins(index.all(), model.vocab_size);
    model.least_v_for_99 = least_size(index.all(), wanted_coverage);
    if (round_index && *round_index < snapshot.rounds.size() &&
        snapshot.rounds[*round_index].row.run_id == run->id)
        model.round_tokens = tokens_of_round(snapshot, vocab, *round_index);
    return model;
}

}  // namespace draftscope
