#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/queries.h"

/// What the Coverage panel draws: how much of the emitted text a static shortlist of the most frequent tokens
/// would have held, where each head stands against it, and how the coverage of heads goes round by round.
namespace draftscope {

/// Tokens emitted by rounds, counted by frequency rank. Only appended to while a run grows.
class CoverageIndex {
  public:
    /// Takes in what is new; starts over when the run or the capture is another one.
    void update(const Snapshot& snapshot, RowId run_id);

    struct Counts {
        std::vector<std::uint32_t> by_rank;         ///< tokens with this rank
        std::vector<std::uint32_t> missed_by_rank;  ///< of them, not in the head's active set
        std::int64_t emitted = 0;                   ///< all, with or without a rank
        std::int64_t ranked = 0;
        std::int64_t covered = 0;  ///< in the active set of the live head
    };
    /// A head's rounds in the order in which they were decided.
    struct HeadRounds {
        std::string head;
        HeadMode mode = HeadMode::drive;
        struct One {
            int committed = 0, covered = 0;
            std::optional<double> mass;
        };
        std::vector<One> rounds;
    };
    const Counts& all() const { return all_; }
    const std::vector<HeadRounds>& heads() const { return heads_; }
    /// How often each token was emitted, most often first.
    std::vector<std::uint32_t> counts_by_token() const;
    const std::map<std::string, Counts>& by_category() const { return by_category_; }
    RowId run_id() const { return run_id_; }

  private:
    static void add(Counts& counts, std::optional<int> rank, bool covered);

    Counts all_;
    std::map<std::string, Counts> by_category_;
    RowId run_id_ = 0;
    std::string source_;
    TimeNs started_ = 0;  ///< a new capture may use the same run id: its run began at another time
    std::size_t seen_ = 0, seen_evals_ = 0;
    std::unordered_map<TokenId, std::uint32_t> by_token_;
    std::vector<HeadRounds> heads_;
};

struct CoveragePoint {
    double v = 1;  ///< shortlist: the v most frequent tokens
    double coverage = 0;
};
struct CoverageCurve {
    std::string label;  ///< "all" or the category
    std::int64_t tokens = 0;
    std::vector<CoveragePoint> points;
};
struct RankBin {
    double from = 1, to = 2;  ///< ranks counted from 1, half-open
    std::int64_t tokens = 0;
    std::int64_t missed = 0;  ///< not in the live head's active set
};
struct HeadMark {
    std::string head;
    std::string label;  ///< short, for the plot
    HeadMode mode = HeadMode::drive;
    double active_rows = 0;
    double coverage = 0;
    std::optional<double> covered_mass;  ///< the ceiling of acceptance
    bool is_dynamic = false;             ///< its shortlist follows the context: drawn as a star
    bool estimate = false;               ///< aligned: drawn hollow
};
/// Coverage of a head over the last rounds, round by round.
struct RoundCoverage {
    std::string head, label;
    HeadMode mode = HeadMode::drive;
    bool is_dynamic = false;
    std::vector<double> round, coverage, mass;  ///< mass NaN where it is not known
};
struct RoundToken {
    TokenId token_id = no_token;
    std::string text;
    double rank = 1;  ///< from 1
    bool covered = true;
};

struct CoverageModel {
    std::string empty_text;
    std::string ranking_text;  ///< says what is missing when there is no ranking
    int vocab_size = 0;
    std::vector<CoverageCurve> curves;  ///< "all" first
    std::string ranking_heads;          ///< heads of the run that take their tokens from a ranking
    CoverageCurve best;  ///< of the ranking that this very text would have wanted: no static one is better
    std::vector<RankBin> tail;
    std::int64_t unranked = 0;    ///< emitted tokens outside the ranking
    std::vector<HeadMark> heads;  ///< the live one last, so that it is drawn on top; `full` left out
    std::vector<RoundCoverage> rounds;
    std::vector<RoundToken> round_tokens;
    int least_v_for_99 = 0;  ///< smallest shortlist with 99 % coverage, 0 = none reaches it
};

/// `round_index`: the selected round, whose tokens are marked.
CoverageModel build_coverage(const Snapshot& snapshot, const CoverageIndex& index,
                             std::optional<std::size_t> round_index);

/// Rounds over which RoundCoverage is a mean.
inline constexpr int coverage_window = 16;

/// Coverage of the `v` most frequent tokens.
double coverage_at(const CoverageIndex::Counts& counts, int v);
/// About `points` shortlist sizes from 1 to `vocab_size`, evenly spaced on a log axis, each different.
std::vector<int> log_sizes(int vocab_size, int points);
/// Frequency rank of a token: the stored one, else that of the vocabulary.
std::optional<int> token_rank(const Vocab* vocab, const TokenRow& token);
/// Heads whose shortlist changes with the context.
bool is_dynamic_head(std::string_view head);
/// Heads that keep the first tokens of a ranking.
bool is_ranked_head(std::string_view head);

}  // namespace draftscope
