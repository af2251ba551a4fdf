#include <algorithm>
#include <memory>
#include <utility>

#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/low_rank.h"
#include "engine/heads/shortlist_ops.h"
#include "engine/heads/shortlists.h"
#include "engine/heads/static_vocab.h"
#include "engine/heads/synthetic_artefact.h"
#include "kernels/row_major_matrix.h"

namespace draftscope {
namespace {

/// SpecVocab (arXiv 2602.13836, section 3). A low-rank speculator ranks all tokens, and the exact head scores
/// the k best of each row. The draft distribution is the softmax over these alone.
class SpecVocabHead final : public LmHead {
  public:
    /// Empty `sizes`: the paper's 2048 at every level.
    SpecVocabHead(HeadArtefact artefact, std::vector<int> sizes, bool per_row)
        : LmHead({.sets = true}),
          artefact_(std::move(artefact)),
          sizes_given_(!sizes.empty()),
          sizes_(sizes.empty() ? std::vector<int>{2048} : std::move(sizes)),
          per_row_(per_row) {}

    Status prepare(kernels::Backend& backend, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, "specvocab"));
        DS_TRY(artefact_.fits(weights));
        for (const int size : sizes_)
            if (size > weights.vocab && sizes_given_)
                return bad_input(
                    "head specvocab: k={} does not fit the target, which has {} tokens; use k=1..{}", size,
                    weights.vocab, weights.vocab);
        weights_ = weights;
        DS_ASSIGN(speculator_, LowRankScorer::load(backend, weights, artefact_, "vocab"));
        for (int row = 0; row < speculator_.rows(); ++row)
            if (!lm_head_has(weights, speculator_.token(row)))
                return bad_input(
                    "{}: head specvocab was fitted for "
                    "token {}, which the drafter's LM head "
                    "does not have; fit one for this drafter",
                    artefact_.path(), speculator_.token(row));
        for (const int size : sizes_)
            if (!backend.limits().can_route(speculator_.rows(), std::min(size, speculator_.rows())))
                return bad_input("head specvocab: a device cannot select k={} of {} tokens; use a smaller k",
                                 size, speculator_.rows());
        store_ = kernels::RowMajorMatrix::make(backend.pool(), *weights.lm_head);
        name_tokens();
        return {};
    }

    std::unique_ptr<HeadState> begin_prompt(std::span<const TokenId>, Rows<const TokenId>) override {
        return std::make_unique<ShortlistState>();
    }
    void begin(HeadCall& call) override { clear_levels<ShortlistState>(call); }
    void on_verified(HeadState* state, const DraftTree&, const Outcome&) override {
        clear_levels<ShortlistState>(state);
    }

    CallShape shape(int level, int rows) const override {
        const int size = size_at(level);
        // The download is the size of the call's union.
        return {
            .stride = size, .support = size, .per_row = true, .set = max_tokens(level, rows), .downloads = 1};
    }
    bool reserve(kernels::Backend& backend, int levels, int rows, int) override {
        for (int level = 0; level < levels; ++level)
            if (!shortlists_.reserve(backend, speculator_.down(level), speculator_.up(level), rows,
                                     size_at(level)))
                return false;
        return true;
    }
    void propose(HeadCall& call) override {
        const int level = call.level, size = size_at(level);
        {
            DeviceSpans::Scope scope(call.spans, call.phases, Phase::router, level, call.rows,
                                     speculator_.bytes(level));
            shortlists_.enqueue_router(&speculator_.down(level), speculator_.up(level), call.x, call.rows,
                                       size);
        }
        // With one sequence, its set is what the call reads.
        const bool one = !per_row_ && call.sequences.size() == 1;
        for (const HeadSequence& sequence : call.sequences) {
            if (one) break;
            DeviceSpans::Scope scope(call.spans, call.phases, Phase::gather, level, sequence.rows, 0);
            shortlists_.enqueue_union(sequence.first_row, sequence.rows, sequence.set, sequence.set_size);
        }
        {
            DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, level, call.rows,
                                     per_row_ ? rows_bytes(static_cast<double>(call.rows) * size) : 0);
            std::int32_t* const read = one ? call.sequences[0].set_size : call.downloads;
            shortlists_.enqueue_exact(store_, per_row_, read, one ? call.sequences[0].set : nullptr);
            if (!per_row_) scope.add_bytes(read, static_cast<double>(store_.row_bytes()));
        }
        DeviceSpans::Scope scope(
            call.spans, call.phases, Phase::topk, level, call.rows,
            3 * static_cast<std::uint64_t>(call.rows) * static_cast<std::uint64_t>(size) * sizeof(float));
        if (call.support_logits != nullptr)
            shortlists_.enqueue_own(call.support_logits, call.support_tokens, call.support_stride);
        else
            shortlists_.enqueue_best(call.k, call.ids, call.logits, call.sums);
    }
    void collect(const HeadReadback& back) override {
        for (std::size_t i = 0; i < back.sequences.size(); ++i) {
            const HeadSequence& sequence = back.sequences[i];
            if (sequence.state == nullptr) continue;
            ShortlistState::Level& seen = static_cast<ShortlistState&>(*sequence.state).levels[back.level];
            const auto set =
                back.sets[i].first(back.sets[i].empty() ? 0 : static_cast<std::size_t>(back.set_sizes[i]));
            if (!set.empty()) seen.ids.reserve(max_tokens(back.level, sequence.rows));  // sizes vary
            seen.ids.assign(set.begin(), set.end());
            count_read(seen, sequence.rows, back.level, back.set_sizes[i]);
        }
        const bool one = back.sequences.size() == 1;
        if (!per_row_)
            back.spans.add_bytes(Phase::head, back.level, [&] {
                return rows_bytes(static_cast<double>(one ? back.set_sizes[0] : back.downloads[0]));
            });
    }

    /// Upper bound: no token is shared by two rows.
    HeadCost cost_at(const HeadState* state, int rows, int level) const override {
        const auto* seen = state == nullptr ? nullptr : static_cast<const ShortlistState*>(state)->at(level);
        const int size = size_at(level);
        const double max_count = std::min<double>(rows * static_cast<double>(size), speculator_.rows());
        const double active = seen == nullptr ? max_count : seen->active_rows;
        const std::uint64_t bytes =
            seen == nullptr ? speculator_.bytes(level) + rows_bytes(active) : seen->bytes;
        return {active,
                bytes,
                speculator_.flops_per_row(level) + 2.0 * size * weights_.hidden,
                Lane::critical,
                bytes - speculator_.bytes(level),
                size};
    }

    ActiveSet active_set(const HeadState* state, int level, std::vector<TokenId>&) const override {
        if (state == nullptr) return {.all_below = speculator_.rows(), .ids = speculator_.ids()};
        const auto* seen = static_cast<const ShortlistState*>(state)->at(level);
        return seen == nullptr ? ActiveSet{} : ActiveSet{.ids = seen->ids};
    }

  private:
    /// Maximum number of tokens in the union of the rows' shortlists.
    int max_tokens(int level, int rows) const {
        return static_cast<int>(
            std::min<std::int64_t>(std::int64_t{rows} * size_at(level), speculator_.rows()));
    }
    int size_at(int level) const {
        const std::size_t last = sizes_.size() - 1;
        return std::min(sizes_[std::min(static_cast<std::size_t>(std::max(level, 0)), last)],
                        speculator_.rows());
    }
    std::uint64_t rows_bytes(double rows) const {
        return static_cast<std::uint64_t>(rows * static_cast<double>(store_.row_bytes()));
    }

    /// Uploads the token ids of the speculator's and the exact head's rows, if either is trimmed.
    void name_tokens() {
        std::vector<std::int32_t> rows;
        if (!weights_.row_ids.empty()) {
            rows.assign(weights_.vocab, 0);
            for (std::size_t i = 0; i < weights_.row_ids.size(); ++i)
                if (const TokenId id = weights_.row_ids[i]; id >= 0 && id < weights_.vocab)
                    rows[id] = static_cast<std::int32_t>(i);
        }
        shortlists_.set_tokens({speculator_.ids(), rows, weights_.vocab});
    }

    void count_read(ShortlistState::Level& seen, int rows, int level, std::int64_t together) const {
        seen.active_rows =
            per_row_ ? static_cast<double>(rows) * size_at(level) : static_cast<double>(together);
        seen.bytes = speculator_.bytes(level) + rows_bytes(seen.active_rows);
    }

    HeadArtefact artefact_;
    bool sizes_given_;
    std::vector<int> sizes_;  ///< candidates per row, per level; the last one for all deeper levels
    bool per_row_;
    HeadWeights weights_;
    LowRankScorer speculator_;
    kernels::RowMajorMatrix store_;
    ShortlistOps shortlists_;
};

constexpr HeadParam specvocab_params[] = {
    {"rank", 0, 1, 1 << 20, false,
     "rank of the speculator, or of its W_down per draft level; default: the file's (the paper: d/8, "
     "d/16)",
     true},
    {"k", 2048, 1, 1 << 20, false, "candidates per row, or a list per draft level (2048/1024)", true},
    share_param,
};

Result<std::unique_ptr<LmHead>> make_specvocab(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(auto sizes, int_list_param(spec, "k"));
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    const bool per_row = word_param(spec, "share", "union") == "per-row";
    return std::unique_ptr<LmHead>(
        std::make_unique<SpecVocabHead>(std::move(artefact), std::move(sizes), per_row));
}

}  // namespace

HeadInfo describe_specvocab() {
    return {.id = "specvocab",
            .name = "SpecVocab",
            .paper = "SpecVocab, arXiv 2602.13836",
            .params = specvocab_params,
            .size = {.name = "k", .values = {256, 512, 1024, 2048}},
            .rgb = 0x009E73,
            .support = HeadSupport::dynamic,
            .required_file = RequiredFile::fitted,
            .artefact = "low-rank speculator",
            .fit = {.kinds = FitRecipe::low_rank | FitRecipe::own_loss, .up = "vocab"},
            .synthesize = [](SyntheticBuilder& builder) { return add_low_rank(builder, "vocab"); },
            .make = make_specvocab};
}

}  // namespace draftscope
