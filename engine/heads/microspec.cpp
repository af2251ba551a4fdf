#include "engine/heads/microspec.h"

#include <algorithm>
#include <utility>

#include "engine/heads/candidates.h"
#include "engine/heads/factories.h"
#include "engine/heads/static_vocab.h"

namespace draftscope {

CandidateStream::CandidateStream(int vocab, int window)
    : window_(static_cast<std::size_t>(window)),
      times_(static_cast<std::size_t>(vocab)),
      marked_(static_cast<std::size_t>(vocab)) {}

void CandidateStream::append(TokenId id) {
    ++times_[static_cast<std::size_t>(id)];
    if (ring_.size() < window_) {
        ring_.push_back(id);
        return;
    }
    --times_[static_cast<std::size_t>(ring_[next_])];
    ring_[next_] = id;
    next_ = (next_ + 1) % window_;
}

void CandidateStream::append_unique(std::span<const TokenId> ids) {
    for (const TokenId id : ids) {
        if (marked_[static_cast<std::size_t>(id)]) continue;
        marked_[static_cast<std::size_t>(id)] = true;
        append(id);
    }
    for (const TokenId id : ids) marked_[static_cast<std::size_t>(id)] = false;
}

void CandidateStream::clear() {
    ring_.clear();
    next_ = 0;
    std::fill(times_.begin(), times_.end(), 0);
}

std::vector<TokenId> CandidateStream::active() const {
    std::vector<TokenId> ids = ring_;
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

namespace {

struct MicroSpecOptions {
    int window = 3072, prompt_k = 3, verify_k = 3;
    bool from_prompt = true, from_rounds = true;
    bool last_only = false;
};

struct MicroSpecState final : HeadState {
    MicroSpecState(int vocab, int window) : stream(vocab, window) {}
    CandidateStream stream;
    bool changed = true;       ///< the stream, since rows were packed
    std::vector<TokenId> ids;  ///< of the packed rows, rising
    kernels::Matrix rows;
};

/// MicroSpec (Algorithm 1): the LM head cut to the tokens that the prompt, the recent draft trees and the
/// target's own best guesses have brought up.
class MicroSpecHead final : public Head {
  public:
    explicit MicroSpecHead(MicroSpecOptions options) : options_(options) {}

    Status prepare(kernels::Exec& exec, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, "microspec"));
        weights_ = weights;
        DS_ASSIGN(full_, make_full_head({}, {}));
        return full_->prepare(exec, weights);
    }

    std::unique_ptr<HeadState> make_state() const override {
        return std::make_unique<MicroSpecState>(weights_.vocab, options_.window);
    }

    int prefill_topk() const override { return options_.from_prompt ? options_.prompt_k : 0; }
    int verify_topk() const override { return options_.from_rounds ? options_.verify_k : 0; }

    void begin_prompt(HeadState* state, std::span<const TokenId> prompt, Rows<const TokenId> best) override {
        MicroSpecState& own = of(state);
        own.stream.clear();
        own.changed = true;
        if (!options_.from_prompt) return;
        for (const TokenId id : prompt)
            if (id < weights_.vocab) own.stream.append(id);
        std::vector<TokenId> candidates;
        for (int r = 0; r < best.rows; ++r) {
            const auto row =
                best.row(r).first(static_cast<std::size_t>(std::min(best.cols, options_.prompt_k)));
            candidates.insert(candidates.end(), row.begin(), row.end());
        }
        own.stream.append_unique(candidates);
    }

    void observe(HeadState* state, const DraftTree& tree, const Outcome& outcome) override {
        if (!options_.from_rounds) return;
        MicroSpecState& own = of(state);
        own.changed = true;
        // The root of a first round may be a prompt token beyond the real ids.
        std::vector<TokenId> candidates;
        for (const TokenId id : tree.tokens)
            if (id < weights_.vocab) candidates.push_back(id);
        own.stream.append_unique(candidates);
        candidates.clear();
        const auto width = static_cast<std::size_t>(outcome.top_k);
        const std::size_t nodes = width == 0 ? 0 : outcome.path_topk.size() / width;
        for (std::size_t i = options_.last_only && nodes > 0 ? nodes - 1 : 0; i < nodes; ++i) {
            const auto row = outcome.path_topk.subspan(
                i * width, std::min(width, static_cast<std::size_t>(options_.verify_k)));
            candidates.insert(candidates.end(), row.begin(), row.end());
        }
        own.stream.append_unique(candidates);
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const> states, int k,
                 Proposal& out) override {
        const auto end_of = [&](int first) {
            int end = first + 1;
            while (end < hidden.rows &&
                   states[static_cast<std::size_t>(end)] == states[static_cast<std::size_t>(first)])
                ++end;
            return end;
        };
        if (end_of(0) == hidden.rows) {
            propose_sequence(context, hidden, *states.front(), k, out);
            return;
        }
        Proposal whole;
        whole.resize(hidden.rows, k);
        for (int first = 0; first < hidden.rows;) {
            const int end = end_of(first);
            propose_sequence(context, hidden.slice(first, end - first),
                             *states[static_cast<std::size_t>(first)], k, out);
            const auto cell = static_cast<std::ptrdiff_t>(first) * k;
            std::copy(out.ids.begin(), out.ids.end(), whole.ids.begin() + cell);
            std::copy(out.logits.begin(), out.logits.end(), whole.logits.begin() + cell);
            std::copy(out.logsumexp.begin(), out.logsumexp.end(), whole.logsumexp.begin() + first);
            std::copy(out.counts.begin(), out.counts.end(), whole.counts.begin() + first);
            first = end;
        }
        out = std::move(whole);
    }

    /// The most that a call may read: the window, when no token appears twice in it.
    HeadCost cost(int) const override { return cost_of_rows(std::min(options_.window, weights_.vocab)); }
    /// Of the rows packed for the round.
    HeadCost cost_at(const HeadState* state, int rows, int) const override {
        return state == nullptr ? cost(rows) : cost_of_rows(static_cast<int>(of(state).ids.size()));
    }

    /// Without a sequence there is no active set, and nothing is left out.
    bool covers(const HeadState* state, TokenId token, int) const override {
        return head_holds(weights_, token) && (state == nullptr || of(state).stream.has(token));
    }
    bool active_ids(const HeadState* state, int, std::vector<TokenId>& out) const override {
        if (state == nullptr || of(state).changed) return false;
        out = of(state).ids;
        return true;
    }
    /// As for covers without a sequence: every logit.
    void scores(kernels::Exec& exec, Rows<const float> hidden, Rows<float> out) override {
        full_->scores(exec, hidden, out);
    }

  private:
    static MicroSpecState& of(HeadState* state) { return static_cast<MicroSpecState&>(*state); }
    static const MicroSpecState& of(const HeadState* state) {
        return static_cast<const MicroSpecState&>(*state);
    }

    HeadCost cost_of_rows(int rows) const {
        const kernels::Matrix& head = *weights_.lm_head;
        const double share = static_cast<double>(rows) / head.n();
        return {static_cast<double>(rows),
                static_cast<std::uint64_t>(share * static_cast<double>(head.bytes())), 2.0 * rows * head.k(),
                Lane::critical};
    }

    void propose_sequence(ProposeContext& context, Rows<const float> hidden, HeadState& state, int k,
                          Proposal& out) {
        MicroSpecState& own = of(&state);
        if (own.changed) pack(context, own, hidden.rows);
        if (own.ids.empty()) {
            out.resize(hidden.rows, k);
            return;
        }
        propose_rows(context, own.rows, own.ids, hidden, k, logits_, out);
    }

    /// The whole active set at once, on the critical lane, read and written.
    void pack(ProposeContext& context, MicroSpecState& own, int rows) {
        PhaseScope scope(context.phases, Phase::gather, context.level, rows);
        own.changed = false;
        std::vector<TokenId> ids = own.stream.active();
        std::erase_if(ids, [&](TokenId id) { return !head_holds(weights_, id); });
        if (ids == own.ids) return;
        own.ids = std::move(ids);
        if (own.ids.empty()) return;
        own.rows = weights_.lm_head->gather_rows(context.exec, head_rows(weights_, own.ids));
        scope.add_bytes(2 * own.rows.bytes());
    }

    MicroSpecOptions options_;
    HeadWeights weights_;
    std::unique_ptr<Head> full_;
    std::vector<float> logits_;
};

}  // namespace

Result<std::unique_ptr<Head>> make_microspec_head(const HeadSpec& spec, const HeadArtefacts&) {
    MicroSpecOptions options;
    DS_ASSIGN(options.window, whole_param(spec, "wmax", options.window));
    DS_ASSIGN(options.prompt_k, whole_param(spec, "kpre", options.prompt_k));
    DS_ASSIGN(options.verify_k, whole_param(spec, "kver", options.verify_k));
    const std::string_view source = word_param(spec, "source", "both");
    options.from_prompt = source != "ext";
    options.from_rounds = source != "ctx";
    options.last_only = word_param(spec, "branch", "path") == "last";
    return std::unique_ptr<Head>(std::make_unique<MicroSpecHead>(options));
}

}  // namespace draftscope
