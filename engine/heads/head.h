#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/phase.h"
#include "base/result.h"
#include "base/spans.h"
#include "base/units.h"
#include "engine/heads/head_call.h"
#include "engine/tree/draft_tree.h"
#include "kernels/matrix.h"

/// Draft LM-head strategies. A head turns drafter hidden rows into candidate tokens. It never sees the
/// target's decision before on_verified(). One file per head, one entry in the registry.
namespace draftscope {

/// What a head is built from. The target or the drafter owns the weights, which outlive the head.
struct HeadWeights {
    const kernels::Matrix* lm_head = nullptr;  ///< [V, d], the head to approximate
    /// Target id of each row of a drafter's trimmed LM head (EAGLE-3's d2t), ascending; empty = row i is
    /// token i.
    std::span<const TokenId> row_ids;
    std::vector<TokenId> always_active;  ///< EOS and chat-end ids; used by heads with eos=yes
    int vocab = 0;                       ///< real ids; padded rows of lm_head after them are never proposed
    int hidden = 0;
    double drafter_bytes = 0;  ///< weights of a draft pass: backbone, and EAGLE-3's fc
    // A fitted artefact must match these; "" and 0 = unknown, which matches any.
    std::string target;           ///< name of the model
    std::uint64_t tokenizer = 0;  ///< Tokenizer::fingerprint()
    std::string drafter;          ///< drafter id, for example "eagle2"
    std::string drafter_hash;     ///< checkpoint_hash() of its weights
};

/// Cost of one head call.
struct HeadCost {
    double active_rows = 0;   ///< rows of the head matrix read per call
    std::uint64_t bytes = 0;  ///< weights read per call
    double flops_per_row = 0;
    Lane lane = Lane::critical;
    std::uint64_t scattered_bytes = 0;  ///< part of `bytes` read as single scattered rows
    /// Tokens of one row's own shortlist, mean over the call's rows; absent = each row has all that is read.
    std::optional<double> row_tokens = {};
};

/// Result of verification as passed to on_verified().
struct Outcome {
    std::span<const int> accepted_path;  ///< node indices, root first
    TokenId bonus = no_token;
    /// [nodes, top_k] target ids, best first, at the nodes of TargetTokens::nodes. Replays and shadows have
    /// those at the path's nodes.
    std::span<const TokenId> best = {};
    int top_k = 0;
};

/// Nodes of a verified tree.
enum class VerifiedNodes {
    path,  ///< those of the accepted path, root first
    all,   ///< in the tree's order; known in live rounds only
};

/// The target's best tokens that a head takes in, in numbers per position.
struct TargetTokens {
    int at_prompt = 0;    ///< each costs an LM-head call per prompt position
    int at_verified = 0;  ///< at each of `nodes`
    VerifiedNodes nodes = VerifiedNodes::path;
    /// Returns whether replays and shadows lack some of them, so that they estimate the head.
    bool need_live_rounds() const { return nodes == VerifiedNodes::all; }
};

/// What a head needs of its callers.
struct HeadNeeds {
    TargetTokens target_tokens = {};  ///< for begin_prompt() and on_verified()
    bool inputs = false;              ///< HeadCall::inputs
    bool rounds = false;              ///< on_verified() changes what it proposes in later rounds
    bool sets = false;                ///< collect() reads the tokens of HeadSequence::set, or their number
};

/// A draft LM-head strategy. It composes ops, which run at once on the CPU and are enqueued on a device.
class LmHead {
  public:
    virtual ~LmHead() = default;
    /// Builds the head's matrices; call it before any other function.
    virtual Status prepare(kernels::Backend& backend, const HeadWeights& weights) = 0;
    /// Starts a sequence. Takes the prompt ids and the target's top-K ids at each prompt position ([prompt,
    /// K], may be empty). Returns the sequence's state; null for stateless heads.
    virtual std::unique_ptr<HeadState> begin_prompt(std::span<const TokenId>, Rows<const TokenId>) {
        return nullptr;
    }
    const HeadNeeds& needs() const { return needs_; }
    const TargetTokens& target_tokens() const { return needs_.target_tokens; }

    /// Returns the sizes of what a call of `rows` rows stores.
    virtual CallShape shape(int level, int rows) const = 0;
    /// Returns the columns of the logits that drafts of `levels` levels are sampled from.
    SupportColumns support_columns(int levels) const;
    /// Reserves memory for calls of up to `rows` rows with `k` candidates. Returns false if memory runs out.
    virtual bool reserve(kernels::Backend& backend, int levels, int rows, int k) = 0;
    /// Called before the drafter's layer computes the rows; work that may run concurrently with it starts
    /// here. Level 0 starts a round. The inputs do not change before propose(). A second call before
    /// propose() replaces the first.
    virtual void begin(HeadCall&) {}
    /// Enqueues up to k candidates per row, or the logits that drafts are sampled from. Records the phases
    /// router, gather, head and topk if they apply.
    virtual void propose(HeadCall& call) = 0;
    /// Called after Backend::synchronize(), for one level after another.
    virtual void collect(const HeadReadback&) {}

    /// Called after each verification with the sequence's tree and its outcome, also if it had no drafts.
    virtual void on_verified(HeadState*, const DraftTree&, const Outcome&) {}
    /// Upper bound on the cost of a call with `rows` rows at a draft level. With a state, the cost of the
    /// sequence's latest call at that level.
    virtual HeadCost cost_at(const HeadState*, int rows, int level) const = 0;
    /// Upper bound on the cost of a level-0 call.
    HeadCost cost(int rows) const { return cost_at(nullptr, rows, 0); }
    /// Returns the tokens that the sequence's latest call at `level` could propose. If each row has its own
    /// shortlist, any row's count. Without a state, those that any call could propose. The set is valid until
    /// the next call with this state; it may be stored in `memory`.
    virtual ActiveSet active_set(const HeadState*, int level, std::vector<TokenId>& memory) const = 0;

  protected:
    explicit LmHead(HeadNeeds needs = {}) : needs_(needs) {}

  private:
    HeadNeeds needs_;
};

/// Parsed `--head` text: "fr-spec:v=8192", "fr-spec:v=8192+rdk".
struct HeadSpec {
    std::string id;
    std::map<std::string, std::string, std::less<>> params;
    bool rdk = false;       ///< redistributes drafts over tokens that the head lacks (engine/heads/rdk.h)
    std::string file = {};  ///< path of its weights or ranking, from the parameter `file`; "" = the caller's
};
/// Parses and formats specs; to_text() returns the canonical form.
Result<HeadSpec> parse_head_spec(std::string_view text);
std::string to_text(const HeadSpec& spec);

/// Files of a head, resolved by the caller; "" = none.
struct HeadFiles {
    std::string ranking_path;        ///< safetensors with `ids` i32 [n], most frequent first
    std::string artefact_path = {};  ///< head artefact of this head
    std::string affinity_path = {};  ///< head artefact `rdk`, for the suffix +rdk
    std::string remedy = {};         ///< command that makes a missing artefact; "" = draftscope fit
};
/// Checks the name and the parameters of a head, not its files.
Status check_head_spec(const HeadSpec& spec);

/// Creates a head. Errors: an unknown head lists the known ones; an unknown or out-of-range parameter is
/// named with its range.
Result<std::unique_ptr<LmHead>> make_head(const HeadSpec& spec, const HeadFiles& artefacts);

}  // namespace draftscope
