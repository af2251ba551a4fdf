#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "base/numel.h"
#include "engine/heads/best_of_product.h"
#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/listed_rows.h"
#include "engine/heads/side_stream.h"
#include "engine/heads/static_vocab.h"
#include "kernels/device_array.h"
#include "kernels/row_major_matrix.h"

namespace draftscope {
namespace {

/// MicroSpec's candidate stream S and its active set I = Unique(Suffix(S, window)) (Algorithm 1). Only the
/// window is kept; tokens that leave it are forgotten.
class RecentTokenWindow {
  public:
    RecentTokenWindow(int vocab, int window);
    /// Makes room for calls of append_unique() with up to `count` ids.
    void reserve(std::size_t count) { seen_.reserve(count); }
    /// Appends an id, which must be in the vocabulary.
    void append(TokenId id);
    /// Appends each distinct id of `ids` in order of first appearance. `only_new` skips an appearance while
    /// its id is active.
    void append_unique(std::span<const TokenId> ids, bool only_new = false);
    bool has(TokenId id) const {
        return id >= 0 && id < static_cast<TokenId>(times_.size()) && times_[id] > 0;
    }
    /// Writes I in ascending order.
    void active(std::vector<TokenId>& out) const;

  private:
    void enter(TokenId id);
    void leave(TokenId id);

    std::vector<TokenId> ring_;  ///< the window; next_ is its oldest entry when full
    std::size_t next_ = 0;
    std::size_t window_;
    std::vector<int> times_;           ///< [V] occurrences in the window
    std::vector<bool> marked_;         ///< [V] scratch of append_unique(), all false between calls
    std::vector<TokenId> seen_;        ///< the marked ids
    std::vector<std::uint64_t> bits_;  ///< [V] bitmap of the window
};

RecentTokenWindow::RecentTokenWindow(int vocab, int window)
    : window_(window), times_(vocab), marked_(vocab), bits_((static_cast<std::size_t>(vocab) + 63) / 64) {
    ring_.reserve(window_);
}

void RecentTokenWindow::append(TokenId id) {
    enter(id);
    if (ring_.size() < window_) {
        ring_.push_back(id);
        return;
    }
    leave(ring_[next_]);
    ring_[next_] = id;
    next_ = (next_ + 1) % window_;
}

void RecentTokenWindow::enter(TokenId id) {
    const std::size_t i = id;
    if (times_[i]++ == 0) bits_[i / 64] |= std::uint64_t{1} << (i % 64);
}

void RecentTokenWindow::leave(TokenId id) {
    const std::size_t i = id;
    if (--times_[i] == 0) bits_[i / 64] &= ~(std::uint64_t{1} << (i % 64));
}

void RecentTokenWindow::append_unique(std::span<const TokenId> ids, bool only_new) {
    seen_.clear();
    for (const TokenId id : ids) {
        if (marked_[id] || (only_new && has(id))) continue;
        marked_[id] = true;
        seen_.push_back(id);
        append(id);
    }
    for (const TokenId id : seen_) marked_[id] = false;
}

void RecentTokenWindow::active(std::vector<TokenId>& out) const {
    out.clear();
    for (std::size_t w = 0; w < bits_.size(); ++w)
        for (std::uint64_t left = bits_[w]; left != 0; left &= left - 1)
            out.push_back(static_cast<TokenId>(w * 64 + std::countr_zero(left)));
}

enum class Gather { async, sync, indexed };
enum class Branch { path, last, tree };

struct MicroSpecOptions {
    int window = 3072, prompt_k = 3, verify_k = 3;
    bool from_prompt = true, from_rounds = true;
    Gather gather = Gather::async;
    Branch branch = Branch::tree;
    bool only_new = false;      ///< active tokens are not appended again
    bool prompt_last = false;   ///< the prompt's tokens enter the window after its candidates
    bool append_bonus = false;  ///< the round's last token is appended even if no draft had it
    bool keep_ends = false;     ///< end-of-text tokens are always active
};

struct MicroSpecState final : HeadState {
    /// Reserves memory for the maximum number of active tokens.
    MicroSpecState(int vocab, int window, int max_tokens, std::shared_ptr<SideStream> side_stream_in)
        : stream(vocab, window), side_stream(std::move(side_stream_in)) {
        for (std::vector<TokenId>* list : {&ids, &listed, &lm_head_rows}) list->reserve(max_tokens + 1);
    }
    ~MicroSpecState() override { side_stream->wait_discard(refill); }

    RecentTokenWindow stream;
    bool changed = true;                ///< whether the stream changed since rows were packed
    std::vector<TokenId> ids;           ///< of the packed rows, ascending
    std::vector<TokenId> listed;        ///< the active set, while it is compared with `ids`
    std::vector<TokenId> lm_head_rows;  ///< rows of `ids`, if the LM head is trimmed
    ListedTokens tokens;                ///< `ids` in device memory
    kernels::GatheredMatrix rows;       ///< with ids: used by the side stream while `refill` is pending
    SideStream::Ticket refill = 0;
    std::shared_ptr<SideStream> side_stream;
    // Packing done by propose() in this round: the level, and the bytes read and written.
    int packed_level = -1;
    std::uint64_t packed_bytes = 0;
};

/// MicroSpec (arXiv 2605.26444, Algorithm 1): the LM head trimmed to candidate tokens from the prompt, the
/// recent draft trees and the target's top tokens. The window's rows are packed into a separate buffer while
/// the drafter's first backbone pass runs (section 3.3).
class MicroSpecHead final : public LmHead {
  public:
    explicit MicroSpecHead(MicroSpecOptions options)
        : LmHead({.target_tokens = {.at_prompt = options.from_prompt ? options.prompt_k : 0,
                                    .at_verified = options.from_rounds ? options.verify_k : 0,
                                    .nodes = options.from_rounds && options.branch == Branch::tree
                                                 ? VerifiedNodes::all
                                                 : VerifiedNodes::path},
                  .rounds = options.from_rounds}),
          options_(options) {}

    Status prepare(kernels::Backend& backend, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, "microspec"));
        weights_ = weights;
        ends_.clear();
        if (options_.keep_ends)
            for (const TokenId id : weights.always_active)
                if (lm_head_has(weights, id)) ends_.push_back(id);
        store_ = kernels::RowMajorMatrix::make(backend.pool(), *weights.lm_head);
        side_stream_ = std::make_shared<SideStream>(backend, Phase::gather);
        all_tokens_ = {};
        candidates_.reserve(max_candidates());
        return {};
    }

    std::unique_ptr<HeadState> begin_prompt(std::span<const TokenId> prompt,
                                            Rows<const TokenId> best) override {
        auto state =
            std::make_unique<MicroSpecState>(weights_.vocab, options_.window, max_active(), side_stream_);
        state->stream.reserve(max_candidates());
        if (options_.from_prompt) append_candidates(*state, prompt, best);
        if (!indexed()) state->rows.reserve(store_, max_active());
        return state;
    }

    void on_verified(HeadState* state, const DraftTree& tree, const Outcome& outcome) override {
        if (!options_.from_rounds) return;
        MicroSpecState& head_state = change(state);
        // The root of a first round may be a prompt token beyond the real ids.
        candidates_.clear();
        for (const TokenId id : tree.tokens)
            if (id < weights_.vocab) candidates_.push_back(id);
        head_state.stream.append_unique(candidates_, options_.only_new);
        candidates_.clear();
        const std::size_t width = outcome.top_k;
        const std::size_t nodes = width == 0 ? 0 : outcome.best.size() / width;
        for (std::size_t i = options_.branch == Branch::last && nodes > 0 ? nodes - 1 : 0; i < nodes; ++i) {
            const auto row =
                outcome.best.subspan(i * width, std::min(width, static_cast<std::size_t>(options_.verify_k)));
            candidates_.insert(candidates_.end(), row.begin(), row.end());
        }
        head_state.stream.append_unique(candidates_, options_.only_new);
        if (options_.append_bonus && outcome.bonus >= 0 && outcome.bonus < weights_.vocab)
            head_state.stream.append_unique({&outcome.bonus, 1}, options_.only_new);
    }

    /// Packs the rows of sequences whose windows changed. A device gathers them on a stream of its own.
    void begin(HeadCall& call) override {
        if (call.level > 0) return;
        HeadContext context{call.backend, call.phases, call.level};
        for (const HeadSequence& sequence : call.sequences) {
            MicroSpecState& head_state = of(sequence.state);
            head_state.packed_level = -1;
            if (options_.gather != Gather::async || !head_state.changed) continue;
            head_state.changed = false;
            if (store_.on_device()) {
                PhaseScope scope(call.phases, Phase::gather, call.level, 1);
                scope.add_bytes(pack(call.backend, head_state));
            } else {
                head_state.refill = side_stream_->start(
                    context, options_.window,
                    [this, &head_state](kernels::Backend& backend) { return pack(backend, head_state); });
            }
        }
    }

    CallShape shape(int, int) const override {
        return {.stride = max_columns(), .support = max_proposed(), .per_row = true, .counted = true};
    }
    bool reserve(kernels::Backend& backend, int, int rows, int k) override {
        if (starts_full() && all_tokens_.count() == 0 && !upload_all_tokens(backend)) return false;
        if (indexed() && !listed_.reserve(backend, rows, max_active(), k)) return false;
        return (indexed() && !starts_full()) || best_.reserve(backend, rows, max_columns(), k);
    }
    void propose(HeadCall& call) override {
        HeadContext context{call.backend, call.phases, call.level};
        for (const HeadSequence& sequence : call.sequences) {
            side_stream_->wait(context, of(sequence.state).refill);
            refresh(context, of(sequence.state), sequence.rows);
        }
        if (!indexed() && store_.on_device()) side_stream_->join(call, 0, 0);
        for (const HeadSequence& sequence : call.sequences) {
            MicroSpecState& head_state = of(sequence.state);
            if (head_state.ids.empty() && starts_full()) {
                enqueue_product(call, sequence, weights_.lm_head->device_matrix(), all_tokens_,
                                weights_.lm_head->bytes());
                continue;
            }
            if (head_state.ids.empty()) {
                leave_no_candidates(call, sequence.first_row, sequence.rows);
                continue;
            }
            if (!upload_tokens(call.backend, head_state)) return;
            if (indexed()) {
                listed_.enqueue(call, sequence, store_, head_state.tokens);
                continue;
            }
            const kernels::DeviceMatrix matrix = head_state.rows.matrix().device_matrix();
            if (matrix.data == nullptr && matrix.packed == nullptr) return;
            enqueue_product(call, sequence, matrix, head_state.tokens, head_state.rows.matrix().bytes());
        }
    }

    /// Cost of the rows packed for the round, plus the packing if propose() did it at this level. Without a
    /// state, an upper bound: the window without duplicates.
    HeadCost cost_at(const HeadState* state, int, int level) const override {
        if (state == nullptr) return rows_cost(std::min(options_.window, weights_.vocab));
        const MicroSpecState& head_state = of(state);
        side_stream_->wait_discard(head_state.refill);
        if (head_state.ids.empty() && starts_full()) return matrix_cost(*weights_.lm_head);
        HeadCost cost = rows_cost(static_cast<int>(head_state.ids.size()));
        if (head_state.packed_level == level) {
            cost.bytes += head_state.packed_bytes;
            cost.scattered_bytes += head_state.packed_bytes / 2;
        }
        return cost;
    }

    ActiveSet active_set(const HeadState* state, int, std::vector<TokenId>& memory) const override {
        if (state == nullptr) return tokens_of_lm_head(weights_);
        const MicroSpecState& head_state = of(state);
        side_stream_->wait_discard(head_state.refill);
        if (head_state.changed) {
            memory.reserve(max_active() + 1);
            list_active(head_state.stream, memory);
        }
        const std::vector<TokenId>& ids = head_state.changed ? memory : head_state.ids;
        if (ids.empty() && starts_full()) return tokens_of_lm_head(weights_);
        return {.ids = ids};
    }

  private:
    static MicroSpecState& of(HeadState* state) { return static_cast<MicroSpecState&>(*state); }
    static const MicroSpecState& of(const HeadState* state) {
        return static_cast<const MicroSpecState&>(*state);
    }
    /// Returns the state for a change of its stream, after pending packing has finished.
    MicroSpecState& change(HeadState* state) {
        MicroSpecState& head_state = of(state);
        side_stream_->wait_discard(head_state.refill);
        head_state.changed = true;
        return head_state;
    }
    void append_candidates(MicroSpecState& head_state, std::span<const TokenId> prompt,
                           Rows<const TokenId> best) {
        if (!options_.prompt_last) append_prompt(head_state, prompt);
        candidates_.clear();
        for (int r = 0; r < best.rows; ++r) {
            const auto row = best.row(r).first(std::min(best.cols, options_.prompt_k));
            candidates_.insert(candidates_.end(), row.begin(), row.end());
        }
        head_state.stream.append_unique(candidates_, options_.only_new);
        if (options_.prompt_last) append_prompt(head_state, prompt);
    }
    void append_prompt(MicroSpecState& head_state, std::span<const TokenId> prompt) const {
        for (const TokenId id : prompt)
            if (id < weights_.vocab && !(options_.only_new && head_state.stream.has(id)))
                head_state.stream.append(id);
    }

    bool indexed() const { return options_.gather == Gather::indexed; }
    /// Candidates of the largest tree.
    std::size_t max_candidates() const { return numel(max_tree_nodes, std::max(options_.verify_k, 1)); }
    /// Maximum number of active tokens of a sequence.
    int max_active() const {
        return std::min(options_.window, weights_.vocab) + static_cast<int>(ends_.size());
    }
    /// Without the prompt's candidates, the window is empty until a round is verified. The full head drafts
    /// until then, as in the authors' code.
    bool starts_full() const { return !options_.from_prompt; }
    /// Columns of the largest product: the LM head's padding is computed, too.
    int max_columns() const { return starts_full() ? weights_.lm_head->n() : max_active(); }
    int max_proposed() const { return starts_full() ? num_lm_head_tokens(weights_) : max_active(); }
    bool upload_all_tokens(kernels::Backend& backend) {
        std::vector<TokenId> ids(weights_.row_ids.begin(), weights_.row_ids.end());
        if (ids.empty()) {
            ids.resize(num_lm_head_tokens(weights_));
            std::iota(ids.begin(), ids.end(), 0);
        }
        return all_tokens_.upload(backend, ids, {}, static_cast<int>(ids.size()));
    }
    /// Proposes from the product with `matrix`, whose rows belong to `tokens`.
    void enqueue_product(HeadCall& call, const HeadSequence& sequence, const kernels::DeviceMatrix& matrix,
                         const ListedTokens& tokens, std::uint64_t bytes) {
        const std::ptrdiff_t first = sequence.first_row, offset = first * call.k;
        const kernels::Activations x = call.backend.at(call.x, first * matrix.stride);
        if (call.support_logits != nullptr) {
            const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, sequence.rows,
                                           bytes);
            enqueue_support(call, sequence, tokens, {matrix, x, sequence.rows});
            return;
        }
        std::int32_t* const ids = call.ids + offset;
        best_.enqueue(call,
                      {matrix, x, sequence.rows, tokens.count(), call.k, nullptr, ids, call.logits + offset,
                       call.sums + first},
                      bytes);
        call.backend.remap_ids({ids, sequence.rows * call.k, nullptr, tokens.ids(), ids});
    }
    /// Uploads the active tokens if they have changed, and their rows if these are read in place.
    bool upload_tokens(kernels::Backend& backend, MicroSpecState& head_state) const {
        if (head_state.tokens.are(head_state.ids)) return true;
        std::span<const TokenId> rows;
        if (indexed()) rows = lm_head_row_indices(weights_, head_state.ids, head_state.lm_head_rows);
        const bool enough = head_state.tokens.upload(backend, head_state.ids, rows, max_active());
        if (!enough) backend.set_out_of_memory("the ids of a head's rows");
        return enough;
    }

    HeadCost rows_cost(int rows) const {
        const auto bytes = static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(store_.row_bytes());
        return {static_cast<double>(rows), bytes, 2.0 * rows * weights_.lm_head->k(), Lane::critical,
                options_.gather == Gather::indexed ? bytes : 0};
    }

    /// Updates the active set if the side stream has not done so.
    void refresh(HeadContext& context, MicroSpecState& head_state, int rows) const {
        if (!head_state.changed) return;
        PhaseScope scope(context.phases, Phase::gather, context.level, rows);
        head_state.changed = false;
        if (options_.gather == Gather::indexed)
            update_ids(head_state);
        else
            scope.add_bytes(head_state.packed_bytes = pack(context.backend, head_state));
        head_state.packed_level = context.level;
    }

    /// Lists the active tokens of a window, ascending.
    void list_active(const RecentTokenWindow& window, std::vector<TokenId>& ids) const {
        window.active(ids);
        if (!ends_.empty()) {
            ids.insert(ids.end(), ends_.begin(), ends_.end());
            std::sort(ids.begin(), ids.end());
            ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        }
        if (!weights_.row_ids.empty())
            std::erase_if(ids, [&](TokenId id) { return !lm_head_has(weights_, id); });
    }
    /// Updates the list of active tokens; returns whether it has changed.
    bool update_ids(MicroSpecState& head_state) const {
        list_active(head_state.stream, head_state.listed);
        if (head_state.listed == head_state.ids) return false;
        head_state.ids.swap(head_state.listed);
        return true;
    }

    /// Reads and writes the complete active set, as in Algorithm 1. Returns the bytes moved.
    std::uint64_t pack(kernels::Backend& backend, MicroSpecState& head_state) const {
        if (!update_ids(head_state) || head_state.ids.empty()) return 0;
        const auto rows = lm_head_row_indices(weights_, head_state.ids, head_state.lm_head_rows);
        if (options_.gather == Gather::async)
            head_state.rows.fill_async(backend.pool(), store_, rows);
        else
            head_state.rows.fill(backend.pool(), store_, rows);
        return 2 * head_state.rows.matrix().bytes();
    }

    MicroSpecOptions options_;
    HeadWeights weights_;
    std::vector<TokenId> ends_;
    kernels::RowMajorMatrix store_;
    std::shared_ptr<SideStream> side_stream_;
    std::vector<TokenId> candidates_;  ///< pending entries of a stream
    BestOfProduct best_;
    ListedRows listed_;
    ListedTokens all_tokens_;  ///< of the LM head, if starts_full()
};

}  // namespace

namespace {

/// Rejects parameters of a candidate source that is switched off: they would have no effect.
Status check_source(const HeadSpec& spec, std::string_view source) {
    const auto refuse = [&](std::span<const std::string_view> names) -> Status {
        for (const std::string_view name : names)
            if (const auto given = spec.params.find(name); given != spec.params.end())
                return bad_input("head microspec: {}={} has no effect with source={}; omit it", name,
                                 given->second, source);
        return {};
    };
    constexpr std::string_view of_prompt[] = {"kpre", "prompt"}, of_rounds[] = {"kver", "branch", "bonus"};
    if (source == "ext") return refuse(of_prompt);
    if (source == "ctx") return refuse(of_rounds);
    return {};
}

constexpr HeadParam microspec_params[] = {
    {"wmax", 3072, 1, 1 << 20, false, "window over the candidate stream, in tokens"},
    {"kpre", 3, 0, 64, false, "the target's best tokens taken at each prompt position"},
    {"kver", 3, 0, 64, false, "the target's best tokens taken at each verified position"},
    {"source", 0, 0, 0, false, "candidates from the prompt (ctx), from the rounds (ext), or both", false,
     "both|ctx|ext"},
    {"gather", 0, 0, 0, false,
     "rows are packed while the backbone runs (async), before the first head call of a round (sync), or read "
     "in place by every call (indexed)",
     false, "async|sync|indexed"},
    // Algorithm 1 and the authors' code take the logits of all nodes; the text says "on the validated
    // branch".
    {"branch", 0, 0, 0, true,
     "verified positions: every node of the tree (in replays and shadows: the accepted path), the accepted "
     "path, or its last node",
     false, "tree|path|last"},
    // Equation 4 windows the raw stream; the authors' code and section 3.3 append new unique tokens.
    {"stream", 0, 0, 0, false,
     "appended to the stream: all candidates of a round, or only those not yet active", false, "all|new"},
    {"prompt", 0, 0, 0, true, "the prompt's tokens enter the window before its candidates, or after them",
     false, "first|last"},
    {"bonus", 0, 0, 0, true, "the round's last token is also appended", false, "no|yes"},
    eos_param,
};

Result<std::unique_ptr<LmHead>> make_microspec(const HeadSpec& spec, const HeadFiles&) {
    DS_TRY(check_source(spec, word_param(spec, "source", "both")));
    MicroSpecOptions options;
    DS_ASSIGN(options.window, int_param(spec, "wmax", options.window));
    DS_ASSIGN(options.prompt_k, int_param(spec, "kpre", options.prompt_k));
    DS_ASSIGN(options.verify_k, int_param(spec, "kver", options.verify_k));
    const std::string_view source = word_param(spec, "source", "both");
    options.from_prompt = source != "ext";
    options.from_rounds = source != "ctx";
    const std::string_view gather = word_param(spec, "gather", "async");
    options.gather = gather == "sync" ? Gather::sync : gather == "indexed" ? Gather::indexed : Gather::async;
    const std::string_view branch = word_param(spec, "branch", "tree");
    options.branch = branch == "last" ? Branch::last : branch == "path" ? Branch::path : Branch::tree;
    options.only_new = word_param(spec, "stream", "all") == "new";
    options.prompt_last = word_param(spec, "prompt", "first") == "last";
    options.append_bonus = word_param(spec, "bonus", "no") == "yes";
    options.keep_ends = keeps_ends(spec);
    return std::unique_ptr<LmHead>(std::make_unique<MicroSpecHead>(options));
}

}  // namespace

HeadInfo describe_microspec() {
    return {.id = "microspec",
            .name = "MicroSpec",
            .paper = "MicroSpec, arXiv 2605.26444, Algorithm 1",
            .params = microspec_params,
            .size = {.name = "wmax", .values = {512, 1024, 2048, 3072}, .max_rows = true},
            .rgb = 0xCC79A7,
            .support = HeadSupport::dynamic,
            .make = make_microspec};
}

}  // namespace draftscope
