#include <algorithm>
#include <memory>
#include <utility>

#include "base/numel.h"
#include "engine/heads/candidates.h"
#include "engine/heads/device_head.h"
#include "engine/heads/device_spans.h"
#include "engine/heads/factories.h"
#include "engine/heads/low_rank.h"
#include "engine/heads/shortlists.h"
#include "engine/heads/static_vocab.h"
#include "engine/heads/synthetic_artefact.h"
#include "kernels/head_shortlists.h"
#include "kernels/matmul_topk.h"
#include "kernels/token_set_union.h"

namespace draftscope {
namespace {

/// SpecVocab (arXiv 2602.13836, section 3). A low-rank speculator ranks all tokens, and the exact head scores
/// the k best of each row. The draft distribution is the softmax over these alone.
class SpecVocabHead final : public LmHead, public DeviceHead {
  public:
    /// Empty `sizes`: the paper's 2048 at every level.
    SpecVocabHead(HeadArtefact artefact, std::vector<int> sizes, bool per_row)
        : artefact_(std::move(artefact)),
          sizes_given_(!sizes.empty()),
          sizes_(sizes.empty() ? std::vector<int>{2048} : std::move(sizes)),
          per_row_(per_row) {}

    Status prepare(kernels::Exec& exec, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, "specvocab"));
        DS_TRY(artefact_.fits(weights));
        for (const int size : sizes_)
            if (size > weights.vocab && sizes_given_)
                return bad_input(
                    "head specvocab: k={} does not fit the target, which has {} tokens; use k=1..{}", size,
                    weights.vocab, weights.vocab);
        weights_ = weights;
        DS_ASSIGN(speculator_, LowRankScorer::load(exec, weights, artefact_, "vocab"));
        for (int row = 0; row < speculator_.rows(); ++row)
            if (!lm_head_has(weights, speculator_.token(row)))
                return bad_input(
                    "{}: head specvocab was fitted for "
                    "token {}, which the drafter's LM head "
                    "does not have; fit one for this drafter",
                    artefact_.path(), speculator_.token(row));
        for (const int size : sizes_)
            if (weights.lm_head->on_device() &&
                !kernels::can_route(speculator_.rows(), std::min(size, speculator_.rows())))
                return bad_input("head specvocab: a device cannot select k={} of {} tokens; use a smaller k",
                                 size, speculator_.rows());
        store_ = kernels::RowMajorMatrix::make(exec, *weights.lm_head);
        together_ = kernels::TokenSetUnion(weights.vocab);
        name_tokens_on_device();
        return {};
    }

    std::unique_ptr<HeadState> make_state() const override { return std::make_unique<ShortlistState>(); }
    void begin_round(ProposeContext&, std::span<HeadState* const> states) override {
        for_each_sequence(states, [](ShortlistState& state, int, int) { state.levels.clear(); });
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const> states, int k,
                 Proposal& out) override {
        choose(context, hidden);
        out.resize(hidden.rows, k);
        if (per_row_) {
            for (int r = 0; r < hidden.rows; ++r) propose_for_rows(context, hidden, r, r + 1, out);
        } else {
            propose_for_rows(context, hidden, 0, hidden.rows, out);
        }
        PhaseScope gather(context.phases, Phase::gather, context.level, hidden.rows);
        PhaseScope remap(context.phases, Phase::remap, context.level, hidden.rows,
                         out.ids.size() * 2 * sizeof(TokenId));
        for (int r = 0; r < hidden.rows; ++r) {
            const auto own = shortlist(r);
            for (TokenId& id : std::span(out.ids).subspan(numel(r, k), k))
                if (id != no_token) id = own[id];
        }
        note(context.exec, states, context.level);
    }

    DeviceHead* device_head() override { return this; }
    SupportColumns support_columns(int levels) const override {
        int max_count = 0;
        for (int level = 0; level < levels; ++level) max_count = std::max(max_count, size_at(level));
        return {max_count, max_count, true};
    }
    int support_size(int level, const HeadState*) const override { return size_at(level); }
    bool reserve(kernels::Device&, int levels, int rows, int) override {
        for (int level = 0; level < levels; ++level)
            if (!shortlists_.reserve(speculator_.down(level), speculator_.up(level), rows, size_at(level)))
                return false;
        return true;
    }
    int max_set_size(int level, int rows) const override {
        return static_cast<int>(
            std::min<std::int64_t>(std::int64_t{rows} * size_at(level), speculator_.rows()));
    }
    bool reads_sets() const override { return true; }
    int num_downloads(int, int) const override { return 1; }  ///< size of the call's union
    void enqueue(DeviceLevel& call) override {
        const int level = call.level, size = size_at(level);
        {
            DeviceSpans::Scope scope(call.spans, call.phases, Phase::router, level, call.rows,
                                     speculator_.bytes(level));
            shortlists_.enqueue_router(&speculator_.down(level), speculator_.up(level), call.x, call.rows,
                                       size);
        }
        // With one sequence, its set is what the call reads.
        const bool one = !per_row_ && call.sequences.size() == 1;
        for (const DeviceSequence& sequence : call.sequences) {
            if (one) break;
            DeviceSpans::Scope scope(call.spans, call.phases, Phase::gather, level, sequence.rows, 0);
            shortlists_.enqueue_union(sequence.first_row, sequence.rows, sequence.set, sequence.set_size);
        }
        {
            DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, level, call.rows,
                                     per_row_ ? rows_bytes(static_cast<double>(call.rows) * size) : 0);
            if (one)
                shortlists_.enqueue_exact(store_, false, call.sequences[0].set_size, call.sequences[0].set);
            else
                shortlists_.enqueue_exact(store_, per_row_, call.downloads);
        }
        DeviceSpans::Scope scope(
            call.spans, call.phases, Phase::topk, level, call.rows,
            3 * static_cast<std::uint64_t>(call.rows) * static_cast<std::uint64_t>(size) * sizeof(float));
        if (call.support_logits != nullptr)
            shortlists_.enqueue_own(call.support_logits, call.support_tokens, call.support_stride);
        else
            shortlists_.enqueue_best(call.k, call.ids, call.logits, call.sums);
    }
    void collect(const DeviceLevelResult& back) override {
        chosen_size_ = size_at(back.level);
        for (std::size_t i = 0; i < back.sequences.size(); ++i) {
            const DeviceSequence& sequence = back.sequences[i];
            if (sequence.state == nullptr) continue;
            ShortlistState::Level& seen = static_cast<ShortlistState&>(*sequence.state).levels[back.level];
            const auto set =
                back.sets[i].first(back.sets[i].empty() ? 0 : static_cast<std::size_t>(back.set_sizes[i]));
            seen.ids.assign(set.begin(), set.end());
            count_read(seen, sequence.rows, back.level, back.set_sizes[i]);
        }
        const bool one = back.sequences.size() == 1;
        if (!per_row_)
            back.spans.add_bytes(
                Phase::head, back.level,
                rows_bytes(static_cast<double>(one ? back.set_sizes[0] : back.downloads[0])));
    }

    /// Upper bound: no token is shared by two rows.
    HeadCost cost_at(const HeadState* state, int rows, int level) const override {
        const auto* seen = state == nullptr ? nullptr : static_cast<const ShortlistState*>(state)->at(level);
        const int size = size_at(level);
        const double max_count = std::min<double>(rows * static_cast<double>(size), speculator_.rows());
        const double active = seen == nullptr ? max_count : seen->active_rows;
        const std::uint64_t bytes =
            seen == nullptr ? speculator_.bytes(level) + rows_bytes(active) : seen->bytes;
        return {active, bytes, speculator_.flops_per_row(level) + 2.0 * size * weights_.hidden,
                Lane::critical, bytes - speculator_.bytes(level)};
    }

    bool covers(const HeadState* state, TokenId token, int level) const override {
        const auto* seen = state == nullptr ? nullptr : static_cast<const ShortlistState*>(state)->at(level);
        if (seen == nullptr) return state == nullptr && speculator_.has(token);
        return std::binary_search(seen->ids.begin(), seen->ids.end(), token);
    }
    bool active_ids(const HeadState* state, int level, std::vector<TokenId>& out) const override {
        const auto* seen = state == nullptr ? nullptr : static_cast<const ShortlistState*>(state)->at(level);
        if (seen == nullptr) return false;
        out.reserve(seen->ids.capacity());  // capacity for the level: the sets vary in size
        out = seen->ids;
        return true;
    }

  private:
    int size_at(int level) const {
        const std::size_t last = sizes_.size() - 1;
        return std::min(sizes_[std::min(static_cast<std::size_t>(std::max(level, 0)), last)],
                        speculator_.rows());
    }
    std::uint64_t rows_bytes(double rows) const {
        return static_cast<std::uint64_t>(rows * static_cast<double>(store_.row_bytes()));
    }

    /// The tokens of a row of the call, ascending.
    std::span<const TokenId> shortlist(int row) const {
        const std::size_t size = chosen_size_;
        return std::span(chosen_).subspan(numel(row, size), size);
    }

    /// The shortlists of rows [first, end).
    Rows<const TokenId> shortlists(int first, int end) const {
        return {chosen_.data() + std::ptrdiff_t{first} * chosen_size_, end - first, chosen_size_};
    }

    /// Selects the shortlists of all rows.
    void choose(ProposeContext& context, Rows<const float> hidden) {
        const int size = chosen_size_ = size_at(context.level);
        chosen_.resize(numel(hidden.rows, size));
        {
            // The best scores are selected while they are computed.
            PhaseScope router(context.phases, Phase::router, context.level, hidden.rows,
                              speculator_.bytes(context.level));
            kernels::matmul_topk_set(context.exec, speculator_.up(context.level),
                                     speculator_.narrow(context.exec, context.level, hidden), size,
                                     Rows<std::int32_t>(chosen_.data(), hidden.rows, size), logits_);
        }
        if (speculator_.ids().empty()) return;
        PhaseScope scope(context.phases, Phase::topk, context.level, hidden.rows,
                         chosen_.size() * sizeof(TokenId));
        for (TokenId& id : chosen_) id = speculator_.token(id);
    }

    /// Uploads the token ids of the speculator's and the exact head's rows, if either is trimmed.
    void name_tokens_on_device() {
        std::vector<std::int32_t> rows;
        if (!weights_.row_ids.empty()) {
            rows.assign(weights_.vocab, 0);
            for (std::size_t i = 0; i < weights_.row_ids.size(); ++i)
                if (const TokenId id = weights_.row_ids[i]; id >= 0 && id < weights_.vocab)
                    rows[id] = static_cast<std::int32_t>(i);
        }
        shortlists_.set_names({speculator_.ids(), rows, weights_.vocab});
    }

    /// Logits whose rows begin at cache lines: blocks of 16 are stored whole.
    Rows<float> aligned_logits(int rows, int columns) {
        constexpr int line = 64 / sizeof(float);
        const std::ptrdiff_t stride = (columns + line - 1) / line * line;
        const std::size_t wanted = rows * stride;
        if (logits_.size() < wanted + line) logits_.resize(wanted + wanted / 4 + line);
        void* at = logits_.data();
        std::size_t room = logits_.size() * sizeof(float);
        return {static_cast<float*>(std::align(line * sizeof(float), wanted * sizeof(float), at, room)), rows,
                columns, stride};
    }

    /// Computes the exact logits of rows [first, end) over the union of their shortlists, and each row's
    /// candidates.
    void propose_for_rows(ProposeContext& context, Rows<const float> hidden, int first, int end,
                          Proposal& out) {
        const int rows = end - first;
        {
            PhaseScope scope(context.phases, Phase::gather, context.level, rows);
            together_.unite(context.exec, shortlists(first, end), union_);
        }
        const Rows<float> exact = aligned_logits(rows, static_cast<int>(union_.size()));
        {
            PhaseScope scope(context.phases, Phase::head, context.level, rows,
                             rows_bytes(static_cast<double>(union_.size())));
            kernels::matmul_rows(context.exec, store_, lm_head_row_indices(weights_, union_, union_rows_),
                                 hidden.slice(first, rows), exact);
        }
        PhaseScope scope(context.phases, Phase::topk, context.level, rows,
                         3 * static_cast<std::uint64_t>(rows) *
                             static_cast<std::uint64_t>(size_at(context.level)) * sizeof(float));
        const int k = out.k;
        const std::size_t at = first, cell = at * k;
        std::fill_n(out.counts.begin() + first, rows, std::min(k, chosen_size_));
        kernels::topk_per_set(
            context.exec, exact, together_, k, Rows<std::int32_t>(out.ids.data() + cell, rows, k),
            Rows<float>(out.logits.data() + cell, rows, k), std::span(out.logsumexp).subspan(at, rows));
        if (context.support == nullptr) return;
        for (int r = 0; r < rows; ++r) {
            const auto own = shortlist(first + r);
            SparseLogits& support = context.support->add();
            support.ids.assign(own.begin(), own.end());
            support.logits.clear();
            const auto owners = together_.owners(r);
            for (std::size_t i = 0; i < union_.size(); ++i)
                if (owners.empty() || (owners[i] & kernels::TokenSetUnion::bit(r)) != 0)
                    support.logits.push_back(exact.row_data(r)[i]);
        }
    }

    /// Stores each sequence's shortlists and its share of the rows read.
    void note(const kernels::Exec& exec, std::span<HeadState* const> states, int level) {
        for_each_sequence(states, [&](ShortlistState& state, int first, int end) {
            ShortlistState::Level& seen = state.levels[level];
            seen.ids.reserve(max_set_size(level, end - first));
            if (!per_row_ && static_cast<std::size_t>(end - first) == states.size()) {
                seen.ids = union_;  // one sequence: the union of the call
            } else {
                together_.unite(exec, shortlists(first, end), seen.ids);
            }
            count_read(seen, end - first, level, static_cast<std::int64_t>(seen.ids.size()));
        });
    }
    void count_read(ShortlistState::Level& seen, int rows, int level, std::int64_t together) const {
        seen.active_rows =
            per_row_ ? static_cast<double>(rows) * chosen_size_ : static_cast<double>(together);
        seen.bytes = speculator_.bytes(level) + rows_bytes(seen.active_rows);
    }

    HeadArtefact artefact_;
    bool sizes_given_;
    std::vector<int> sizes_;  ///< candidates per row, per level; the last one for all deeper levels
    bool per_row_;
    HeadWeights weights_;
    LowRankScorer speculator_;
    kernels::RowMajorMatrix store_;
    kernels::TokenSetUnion together_;
    std::vector<float> logits_;
    std::vector<TokenId> chosen_;  ///< [rows, chosen_size_], the shortlists of the call
    int chosen_size_ = 0;
    std::vector<TokenId> union_, union_rows_;
    kernels::DeviceShortlists shortlists_;
};

constexpr HeadParam params[] = {
    {"rank", 0, 1, 1 << 20, false,
     "rank of the speculator, or of its W_down per draft level; default: the artefact's (the paper: d/8, "
     "d/16)",
     true},
    {"k", 2048, 1, 1 << 20, false, "candidates per row, or a list per draft level (2048/1024)", true},
    share_param,
};

Result<std::unique_ptr<LmHead>> make(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(auto sizes, whole_list_param(spec, "k"));
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
            .params = params,
            .rgb = 0x009E73,
            .support = HeadSupport::dynamic,
            .required_file = RequiredFile::fitted,
            .artefact = "low-rank speculator",
            .fit = {.weights = FitRecipe::Weights::low_rank, .up = "vocab", .own_loss = true},
            .synthesize = [](SyntheticBuilder& builder) { return add_low_rank(builder, "vocab"); },
            .make = make};
}

}  // namespace draftscope
