#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/phase.h"
#include "base/result.h"
#include "base/reusable_vector.h"
#include "base/spans.h"
#include "base/units.h"
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
    std::vector<TokenId> always_active;  ///< EOS and chat-end ids; in every static vocabulary
    int vocab = 0;                       ///< real ids; padded rows of lm_head after them are never proposed
    int hidden = 0;
    double drafter_bytes = 0;  ///< backbone weights read per draft level
    // A fitted artefact must match these; "" and 0 = unknown, which matches any.
    std::string target;           ///< name of the model
    std::uint64_t tokenizer = 0;  ///< Tokenizer::fingerprint()
    std::string drafter;          ///< drafter id, for example "eagle2"
    std::string drafter_hash;     ///< checkpoint_hash() of its weights
};

/// Per-sequence state of a head; empty for stateless heads.
class HeadState {
  public:
    virtual ~HeadState() = default;
};

/// Candidates of `rows` hidden rows: at most k each, by descending logit, ties to the lower token id.
struct Proposal {
    int k = 0;
    std::vector<TokenId> ids;      ///< [rows, k] target ids
    std::vector<float> logits;     ///< [rows, k]
    std::vector<float> logsumexp;  ///< [rows], over the row's support
    std::vector<int> counts;       ///< [rows]; < k if the shortlist is smaller
    void resize(int rows, int k_in);
};

/// Cost of one head call.
struct HeadCost {
    double active_rows = 0;   ///< rows of the head matrix read per call
    std::uint64_t bytes = 0;  ///< weights read per call
    double flops_per_row = 0;
    Lane lane = Lane::critical;
    std::uint64_t scattered_bytes = 0;  ///< part of `bytes` read as single scattered rows
};

/// The logits of all tokens in a row's support. Drafts are sampled from them (`--verify pq`).
struct SparseLogits {
    std::vector<TokenId> ids;  ///< ascending; empty = logits[i] is of token i
    std::vector<float> logits;
};

class DeviceHead;

/// One draft level of a step, over the rows of all sequences.
struct ProposeContext {
    kernels::Exec& exec;
    PhaseRecorder& phases;
    int level = 0;  ///< 0 = the catch-up row
    /// Receives the logits that drafts are sampled from, or null. If set, propose() appends one row per
    /// hidden row, in their order (see store_support_logits()). The distribution is softmax(logits /
    /// temperature). If a head appends nothing, drafts are sampled from its best candidates alone: still
    /// lossless, but fewer are accepted.
    ReusableVector<SparseLogits>* support = nullptr;
    double temperature = 0;  ///< of sampling; 0 = drafts are not sampled
};

/// Result of verification as passed to on_verified().
struct Outcome {
    std::span<const int> accepted_path;  ///< node indices, root first
    TokenId bonus = no_token;
    std::span<const TokenId> path_topk;  ///< [path, top_k] target ids at the path's nodes, best first
    int top_k = 0;
    /// [nodes of the tree, top_k] if the head requests them (target_tokens()), else empty.
    std::span<const TokenId> tree_topk = {};
};

/// The target's best tokens that a head takes in, in numbers per position.
struct TargetTokens {
    int at_prompt = 0;        ///< each costs an LM-head call per prompt position
    int at_verified = 0;      ///< at the nodes of the accepted path
    bool whole_tree = false;  ///< at every node instead. Recordings lack these, so the head is not replayable
};

/// A draft LM-head strategy.
class LmHead {
  public:
    virtual ~LmHead() = default;
    /// Builds the head's matrices; call it before any other function.
    virtual Status prepare(kernels::Exec& exec, const HeadWeights& weights) = 0;
    virtual std::unique_ptr<HeadState> make_state() const { return nullptr; }
    /// Starts a sequence. Takes the prompt ids and the target's top-K ids at each prompt position ([prompt,
    /// K], may be empty).
    virtual void begin_prompt(HeadState*, std::span<const TokenId>, Rows<const TokenId>) {}
    /// The target's tokens for begin_prompt() and on_verified().
    const TargetTokens& target_tokens() const { return target_tokens_; }
    /// Called before the drafter's catch-up, once per step, with the states of the sequences that draft in
    /// it.
    virtual void begin_round(ProposeContext&, std::span<HeadState* const> /*states*/) {}
    /// Called before the backbone pass of a level; side-stream work may start here. The rows and their order
    /// are those of the next propose(). Row r of `embeddings` [rows, d] is the token it starts from. Row r of
    /// `parent_hiddens` [rows, d] is the drafter's hidden it continues from (level 0 and path heads: the
    /// target's feature). The backbone may overwrite the rows after the call. A second call before propose()
    /// replaces the first.
    virtual void begin_level(ProposeContext&, Rows<const float> /*embeddings*/,
                             Rows<const float> /*parent_hiddens*/, std::span<HeadState* const> /*states*/) {}
    /// Proposes up to k candidates per row. Records phases router, head, topk (child softmax) and gather
    /// (child remap) if they apply. states[r] is the state of row r's sequence (null for stateless heads);
    /// rows of one sequence are adjacent.
    virtual void propose(ProposeContext& context, Rows<const float> hidden,
                         std::span<HeadState* const> states, int k, Proposal& out) = 0;
    /// Returns the implementation for devices; null if the head runs on the CPU only.
    virtual DeviceHead* device_head() { return nullptr; }
    /// Called after each verification with the sequence's tree and its outcome.
    virtual void on_verified(HeadState*, const DraftTree&, const Outcome&) {}
    /// Upper bound on the cost of a call with `rows` rows at a draft level. With a state, the cost of the
    /// sequence's latest call at that level.
    virtual HeadCost cost_at(const HeadState*, int rows, int level) const = 0;
    /// Upper bound on the cost of a level-0 call.
    HeadCost cost(int rows) const { return cost_at(nullptr, rows, 0); }
    /// Returns whether `token` is in the active set of this sequence at draft level `level`. If each row of a
    /// level has its own shortlist, any row's counts.
    virtual bool covers(const HeadState*, TokenId token, int level) const = 0;
    /// Writes the set of covers() as a list. Returns false if the head has no list; then call covers() per
    /// token.
    virtual bool active_ids(const HeadState*, int /*level*/, std::vector<TokenId>& /*out*/) const {
        return false;
    }

  protected:
    explicit LmHead(TargetTokens target_tokens = {}) : target_tokens_(target_tokens) {}

  private:
    TargetTokens target_tokens_;
};

/// Parsed `--head` text: "fr-spec:v=8192", "fr-spec:v=8192+rdk".
struct HeadSpec {
    std::string id;
    std::map<std::string, std::string, std::less<>> params;
    bool rdk = false;  ///< redistributes drafts over tokens that the head lacks (engine/heads/rdk.h)
};
/// Parses and formats specs; to_text() returns the canonical form.
Result<HeadSpec> parse_head_spec(std::string_view text);
std::string to_text(const HeadSpec& spec);

/// Files of a head, resolved by the caller; "" = none.
struct HeadFiles {
    std::string ranking_path;        ///< safetensors with `ids` i32 [n], most frequent first
    std::string artefact_path = {};  ///< head artefact of this head
    std::string affinity_path = {};  ///< head artefact `rdk`, for the suffix +rdk
};

/// Creates a head. Errors: an unknown head lists the known ones; an unknown or out-of-range parameter is
/// named with its range.
Result<std::unique_ptr<LmHead>> make_head(const HeadSpec& spec, const HeadFiles& artefacts);

}  // namespace draftscope
