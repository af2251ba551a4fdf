#include "app/gui/models/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "capture/token_text.h"

namespace draftscope {
namespace {

constexpr int curve_points = 160;
constexpr double wanted_coverage = 0.99;

/// `counts`: occurrences among the `emitted` tokens, in the order of a ranking.
CoverageCurve make_curve(std::string label, std::int64_t emitted, std::span<const std::uint32_t> counts,
                         std::span<const int> sizes) {
    CoverageCurve curve{std::move(label), emitted, {}};
    std::int64_t held = 0;
    std::size_t rank = 0;
    for (const int v : sizes) {
        for (; rank < static_cast<std::size_t>(v) && rank < counts.size(); ++rank) held += counts[rank];
        curve.points.push_back(
            {static_cast<double>(v), static_cast<double>(held) / static_cast<double>(emitted)});
    }
    return curve;
}

/// Half-octave bins from rank 1 to the end of the vocabulary.
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

int min_shortlist_size(const CoverageIndex::Counts& counts, double wanted) {
    std::int64_t held = 0;
    for (std::size_t rank = 0; rank < counts.by_rank.size(); ++rank) {
        held += counts.by_rank[rank];
        if (static_cast<double>(held) >= wanted * static_cast<double>(counts.emitted))
            return static_cast<int>(rank) + 1;
    }
    return 0;
}

/// Returns a token's frequency rank: the stored rank, otherwise the vocabulary's.
std::optional<int> token_rank(const Vocab* vocab, const TokenRow& token) {
    if (token.rank) return token.rank;
    if (vocab == nullptr || token.token_id < 0 ||
        static_cast<std::size_t>(token.token_id) >= vocab->rows.size())
        return std::nullopt;
    return vocab->rows[token.token_id].rank;
}

std::vector<RoundToken> tokens_of_round(const Snapshot& snapshot, const Vocab* vocab, std::size_t round) {
    std::vector<RoundToken> tokens;
    const RoundEntry& entry = snapshot.rounds[round];
    const RunRow* run = snapshot.run(entry.row.run_id);
    for (std::uint32_t i = 0; i < entry.tokens.count; ++i) {
        const TokenRow& token = snapshot.tokens[entry.tokens.first + i];
        const std::optional<int> rank = token_rank(vocab, token);
        if (!rank) continue;
        tokens.push_back({token.token_id, token_label(snapshot, run, token.token_id), *rank + 1.0,
                          token.covered.value_or(true)});
    }
    return tokens;
}

std::string head_label(const std::string& head, HeadMode mode) {
    const std::string id(head_id(head));
    return mode == HeadMode::aligned ? id + " (aligned)" : id;
}

/// Returns the driving head last. Heads that cover the whole vocabulary are left out.
std::vector<HeadMark> head_marks(const Snapshot& snapshot, RowId run_id, const RunHeadTraits& run_heads) {
    std::vector<HeadMark> marks;
    for (const HeadStats& stats : head_stats(snapshot, run_id)) {
        const HeadTraits traits = run_heads.of(stats.head);
        if (!stats.coverage || traits.support == HeadSupport::all) continue;
        marks.push_back(
            {stats.head, head_label(stats.head, stats.mode), stats.mode, stats.active_rows,
             describe_shortlist(stats), *stats.coverage, stats.covered_mass,
             traits.support == HeadSupport::dynamic,
             stats.mode == HeadMode::aligned || (stats.mode != HeadMode::drive && traits.replay_estimate),
             traits.rgb});
    }
    std::ranges::stable_sort(marks, {}, [](const HeadMark& m) { return m.mode == HeadMode::drive; });
    return marks;
}

/// Moving average over `coverage_window` rounds, with about `max_points` points at most.
RoundCoverage round_coverage(const CoverageIndex::HeadRounds& head, const HeadTraits& traits) {
    constexpr std::size_t max_points = 400;
    RoundCoverage out;
    out.label = head_label(head.head, head.mode);
    out.is_dynamic = traits.support == HeadSupport::dynamic;
    out.rgb = traits.rgb;
    const std::size_t stride = std::max<std::size_t>(1, head.rounds.size() / max_points);
    std::int64_t committed = 0, covered = 0;
    const auto add = [&](const CoverageIndex::HeadRounds::RoundCounts& one, int sign) {
        committed += sign * one.committed;
        covered += sign * one.covered;
    };
    for (std::size_t i = 0; i < head.rounds.size(); ++i) {
        add(head.rounds[i], 1);
        if (i >= coverage_window) add(head.rounds[i - coverage_window], -1);
        if (i % stride != 0 || i + 1 < std::min<std::size_t>(coverage_window, head.rounds.size()) ||
            committed == 0)
            continue;
        out.round.push_back(static_cast<double>(i + 1));
        out.coverage.push_back(static_cast<double>(covered) / static_cast<double>(committed));
    }
    return out;
}

/// The curve ends where it reaches 1.
CoverageCurve best_curve(const CoverageIndex& index, std::span<const int> sizes) {
    const std::vector<std::uint32_t> counts = index.counts_by_token();
    const auto all = std::ranges::lower_bound(sizes, static_cast<int>(counts.size())) - sizes.begin();
    return make_curve("best ranking for this text", index.all().emitted, counts,
                      sizes.first(std::min<std::size_t>(all + 1, sizes.size())));
}

}  // namespace

void CoverageIndex::add(Counts& counts, std::optional<int> rank, bool covered) {
    ++counts.emitted;
    if (!rank || *rank < 0) return;
    ++counts.ranked;
    const std::size_t at = *rank;
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
    for (; seen_evals_ < snapshot.head_evals.size(); ++seen_evals_) {
        const HeadEvalRow& row = snapshot.head_evals[seen_evals_];
        if (row.run_id != run_id || row.mode == HeadMode::calibration) continue;
        auto found = std::ranges::find_if(
            heads_, [&](const HeadRounds& of) { return of.mode == row.mode && of.head == row.head; });
        if (found == heads_.end()) found = heads_.insert(heads_.end(), {row.head, row.mode, {}});
        found->rounds.push_back({row.committed, row.covered});
    }
    const Vocab* vocab = snapshot.vocab(run->vocab_id);
    for (; seen_ < snapshot.tokens.size(); ++seen_) {
        const TokenRow& token = snapshot.tokens[seen_];
        // The first generated token comes from prefill, without a head.
        if (token.source == TokenSource::prefill) continue;
        const PromptRow* prompt = snapshot.prompt(token.prompt_id);
        if (prompt == nullptr || prompt->run_id != run_id) continue;
        const std::optional<int> rank = token_rank(vocab, token);
        const bool covered = token.covered.value_or(true);
        add(all_, rank, covered);
        ++by_token_[token.token_id];
        if (!prompt->category.empty()) add(by_category_[prompt->category], rank, covered);
    }
}

std::vector<std::uint32_t> CoverageIndex::counts_by_token() const {
    std::vector<std::uint32_t> counts;
    counts.reserve(by_token_.size());
    for (const auto& [token, count] : by_token_) counts.push_back(count);
    std::sort(counts.begin(), counts.end(), std::greater<>());
    return counts;
}

double coverage_at(const CoverageIndex::Counts& counts, int v) {
    if (counts.emitted == 0) return 0;
    const auto first =
        std::span(counts.by_rank).first(std::min<std::size_t>(std::max(v, 0), counts.by_rank.size()));
    return static_cast<double>(std::accumulate(first.begin(), first.end(), std::int64_t{0})) /
           static_cast<double>(counts.emitted);
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

std::string describe_shortlist(const HeadStats& stats) {
    if (!has_own_shortlists(stats.row_tokens, stats.active_rows))
        return fmt::format("shortlist of {:.0f} tokens", stats.active_rows);
    return fmt::format("{:.0f} tokens in a row's shortlist, {:.0f} in all that a level's call reads",
                       *stats.row_tokens, stats.active_rows);
}

CoverageModel build_coverage(const Snapshot& snapshot, const CoverageIndex& index,
                             std::optional<std::size_t> round_index) {
    CoverageModel model;
    const RunRow* run = snapshot.run(index.run_id());
    if (run == nullptr || index.all().emitted == 0) {
        model.empty_text = run == nullptr ? "No run yet. Coverage needs emitted tokens."
                           : run->acceptance == imported_acceptance
                               ? "The imported file has no token ids, so nothing can be ranked."
                               : "No round has emitted a token yet.";
        return model;
    }
    const Vocab* vocab = snapshot.vocab(run->vocab_id);
    model.vocab_size = vocab == nullptr ? static_cast<int>(index.all().by_rank.size())
                                        : static_cast<int>(vocab->rows.size());
    model.ranking_source = ranking_source(*run);
    const RunHeadTraits run_heads(*run);
    model.heads = head_marks(snapshot, run->id, run_heads);
    for (const CoverageIndex::HeadRounds& head : index.heads())
        if (const HeadTraits traits = run_heads.of(head.head); traits.support != HeadSupport::all)
            model.rounds.push_back(round_coverage(head, traits));
    for (const HeadMark& head : model.heads)
        if (run_heads.of(head.head).ranked && model.ranking_heads.find(head.label) == std::string::npos)
            model.ranking_heads += (model.ranking_heads.empty() ? "" : ", ") + head.label;
    model.unranked = index.all().emitted - index.all().ranked;
    if (index.all().ranked == 0) {
        model.ranking_text =
            "No token ranking is known for this vocabulary, so there is no curve. The heads fr-spec, "
            "pa-fr and vocabtrim include one, fitting computes one from raw text, and an import can be "
            "given one.";
        return model;
    }
    model.vocab_size = std::max(model.vocab_size, static_cast<int>(index.all().by_rank.size()));
    const std::vector<int> sizes = log_sizes(model.vocab_size, curve_points);
    const auto add = [&](std::string label, const CoverageIndex::Counts& counts) {
        model.curves.push_back(make_curve(std::move(label), counts.emitted, counts.by_rank, sizes));
    };
    add("all", index.all());
    if (index.by_category().size() > 1)
        for (const auto& [category, counts] : index.by_category()) add(category, counts);
    model.best = best_curve(index, sizes);
    model.tail = tail_bins(index.all(), model.vocab_size);
    model.min_v_for_99 = min_shortlist_size(index.all(), wanted_coverage);
    if (round_index && *round_index < snapshot.rounds.size() &&
        snapshot.rounds[*round_index].row.run_id == run->id)
        model.round_tokens = tokens_of_round(snapshot, vocab, *round_index);
    return model;
}

}  // namespace draftscope
