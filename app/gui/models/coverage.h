#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/queries.h"

/// Model of the Coverage panel: the share of emitted tokens that a static shortlist covers, by its size.
/// Heads are shown against this curve and round by round.
namespace draftscope {

/// Counts the tokens emitted by rounds, by frequency rank. Updates are incremental while a run grows.
class CoverageIndex {
  public:
    /// Adds new rounds. Starts over if the run or the capture changed.
    void update(const Snapshot& snapshot, RowId run_id);

    struct Counts {
        std::vector<std::uint32_t> by_rank;         ///< tokens with this rank
        std::vector<std::uint32_t> missed_by_rank;  ///< those outside the head's active set
        std::int64_t emitted = 0;                   ///< all tokens, with or without a rank
        std::int64_t ranked = 0;
    };
    /// A head's rounds in decoding order.
    struct HeadRounds {
        std::string head;
        HeadMode mode = HeadMode::drive;
        struct RoundCounts {
            int committed = 0, covered = 0;
        };
        std::vector<RoundCounts> rounds;
    };
    const Counts& all() const { return all_; }
    const std::vector<HeadRounds>& heads() const { return heads_; }
    /// Returns the number of occurrences of each emitted token, in descending order.
    std::vector<std::uint32_t> counts_by_token() const;
    const std::map<std::string, Counts>& by_category() const { return by_category_; }
    RowId run_id() const { return run_id_; }

  private:
    static void add(Counts& counts, std::optional<int> rank, bool covered);

    Counts all_;
    std::map<std::string, Counts> by_category_;
    RowId run_id_ = 0;
    std::string source_;
    TimeNs started_ = 0;  ///< start of the run: tells apart captures with equal run ids
    std::size_t seen_ = 0, seen_evals_ = 0;
    std::unordered_map<TokenId, std::uint32_t> by_token_;
    std::vector<HeadRounds> heads_;
};

struct CoveragePoint {
    double v = 1;  ///< shortlist size: the v most frequent tokens
    double coverage = 0;
};
struct CoverageCurve {
    std::string label;  ///< "all" or the category
    std::int64_t tokens = 0;
    std::vector<CoveragePoint> points;
};
/// Emitted tokens in a range of ranks.
struct RankBin {
    double from = 1, to = 2;  ///< ranks counted from 1, half-open
    std::int64_t tokens = 0;
    std::int64_t missed = 0;  ///< outside the driving head's active set
};
/// A head's mark in the coverage plot.
struct HeadMark {
    std::string head;
    std::string label;  ///< short, for the plot
    HeadMode mode = HeadMode::drive;
    double active_rows = 0;
    std::string size_text;  ///< describe_shortlist()
    double coverage = 0;
    std::optional<double> covered_mass;  ///< covered target probability: upper bound of acceptance
    bool is_dynamic = false;             ///< context-dependent shortlist, drawn as a star
    bool estimate = false;               ///< from aligned mode, or HeadTraits::replay_estimate; drawn hollow
    std::uint32_t rgb = 0;
};
/// Moving average of a head's coverage, round by round.
struct RoundCoverage {
    std::string label;
    bool is_dynamic = false;
    std::uint32_t rgb = 0;
    std::vector<double> round, coverage;
};
/// A token emitted by the selected round.
struct RoundToken {
    TokenId token_id = no_token;
    std::string text;
    double rank = 1;  ///< from 1
    bool covered = true;
};

struct CoverageModel {
    std::string empty_text;
    std::string ranking_text;    ///< what is missing; "" with a ranking
    std::string ranking_source;  ///< what the ranking was counted on; "" = unknown
    int vocab_size = 0;
    std::vector<CoverageCurve> curves;  ///< "all" first
    std::string ranking_heads;          ///< heads of the run with a ranked shortlist
    CoverageCurve best;                 ///< best ranking for this text: upper bound of static ones
    std::vector<RankBin> tail;
    std::int64_t unranked = 0;  ///< emitted tokens outside the ranking
    std::vector<HeadMark>
        heads;  ///< driving head last (drawn on top); without heads that propose every token
    std::vector<RoundCoverage> rounds;
    std::vector<RoundToken> round_tokens;
    int min_v_for_99 = 0;  ///< smallest shortlist with 99 % coverage; 0 = none
};

/// Builds the model. `round_index`: the selected round, whose tokens are marked.
CoverageModel build_coverage(const Snapshot& snapshot, const CoverageIndex& index,
                             std::optional<std::size_t> round_index);

/// Returns the size of what a head proposes from: "shortlist of 8192 tokens", or, if the rows of a call have
/// shortlists of their own, "6255 tokens in a row's shortlist, 14256 in all that a level's call reads".
std::string describe_shortlist(const HeadStats& stats);

/// Window of RoundCoverage's moving average, in rounds.
inline constexpr int coverage_window = 16;

/// Returns the coverage of the `v` most frequent tokens, 0..1.
double coverage_at(const CoverageIndex::Counts& counts, int v);
/// Returns about `points` distinct shortlist sizes from 1 to `vocab_size`, evenly spaced on a log axis.
std::vector<int> log_sizes(int vocab_size, int points);

}  // namespace draftscope
