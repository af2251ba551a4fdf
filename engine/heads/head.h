#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/reused.h"
#include "base/spans.h"
#include "base/units.h"
#include "engine/tree/draft_tree.h"
#include "kernels/matrix.h"
#include "profiler/phase.h"

/// Draft LM-head strategies. A head turns drafter hidden rows into candidate tokens; it never sees the
/// target's decision before `observe`. One file per head, one row in the registry table.
namespace draftscope {

/// What a head may build on. All shared with the target or the drafter and alive as long as the head.
struct HeadWeights {
    const kernels::Matrix* lm_head = nullptr;  ///< [V, d], the head to approximate
    /// Target id of each row of a drafter's own trimmed head (EAGLE-3's d2t), rising; empty = row i is token
    /// i.
    std::span<const TokenId> row_ids;
    std::vector<TokenId> always_active;  ///< EOS and chat-end ids: in every static vocabulary
    int vocab = 0;                       ///< real ids; padded rows of lm_head beyond are never proposed
    int hidden = 0;
    double drafter_bytes = 0;  ///< backbone weights that one draft level reads
    // What a fitted artefact must have been made for; "" and 0 = unknown, which fits any.
    std::string target;           ///< name of the model
    std::uint64_t tokenizer = 0;  ///< Tokenizer::fingerprint()
    std::string drafter;          ///< id, "eagle2"
    std::string drafter_hash;     ///< checkpoint_hash() of its weights
};

/// Per-sequence state of a head; empty for stateless heads.
class HeadState {
  public:
    virtual ~HeadState() = default;
};

/// Candidates of `rows` hidden rows, at most k each, descending logit, ties to the lower token id.
struct Proposal {
    int k = 0;
    std::vector<TokenId> ids;      ///< [rows, k] target ids
    std::vector<float> logits;     ///< [rows, k]
    std::vector<float> logsumexp;  ///< [rows], over the row's own support
    std::vector<int> counts;       ///< [rows], < k where the shortlist is smaller
    void resize(int rows, int k_in);
};

struct HeadCost {
    double active_rows = 0;   ///< rows of the head matrix read per call
    std::uint64_t bytes = 0;  ///< weights read per call
    double flops_per_row = 0;
    Lane lane = Lane::critical;
    std::uint64_t scattered_bytes = 0;  ///< of `bytes`, read as single rows that lie anywhere
};

/// Every token of a row's own support with its logit: what drafts can be drawn from (`--verify pq`).
struct SupportRow {
    std::vector<TokenId> ids;  ///< rising; empty = logits[i] is of token i
    std::vector<float> logits;
};

/// A head whose proposal is the best rows of one product, so that a device can go from level to level without
/// asking the host: logits are up (down h), or up h, and the bias on top.
struct DirectHead {
    const kernels::Matrix* down = nullptr;  ///< null = none
    const kernels::Matrix* up = nullptr;
    int support = 0;               ///< first outputs of `up` that count
    std::span<const TokenId> ids;  ///< token of each output; empty = output i is token i
    std::span<const float> bias =
        {};  ///< of `up`'s outputs, the same as long as the head lives; may be empty
};

class HeadThere;

/// One draft level of a step, over the rows of all its sequences.
struct ProposeContext {
    kernels::Exec& exec;
    PhaseRecorder& phases;
    int level = 0;  ///< 0 = catch-up row
    /// When drafts are drawn: propose() adds one row per hidden row, in their order (keep_support() does),
    /// and drafts are drawn from softmax(logits / temperature). A head that adds nothing has its drafts
    /// drawn from its best candidates alone: as lossless, but fewer are kept.
    Reused<SupportRow>* support = nullptr;
    double temperature = 0;  ///< of the draws; 0 = none are made
};

/// Outcome of verification as a head sees it.
struct Outcome {
    std::span<const int> accepted_path;  ///< node indices, root first
    TokenId bonus = no_token;
    std::span<const TokenId> path_topk;  ///< [path, top_k] target ids at the path's nodes, best first
    int top_k = 0;
    /// [nodes of the tree, top_k], for heads that ask for it (verify_whole_tree); else empty.
    std::span<const TokenId> tree_topk = {};
};

class Head {
  public:
    virtual ~Head() = default;
    virtual Status prepare(kernels::Exec& exec, const HeadWeights& weights) = 0;
    virtual std::unique_ptr<HeadState> make_state() const { return nullptr; }
    /// `prompt` ids and the target's top-K ids at each prompt position ([prompt, K], may be empty).
    virtual void begin_prompt(HeadState*, std::span<const TokenId>, Rows<const TokenId>) {}
    /// The K that begin_prompt and observe want. The prompt's costs an LM head call per prompt position.
    virtual int prefill_topk() const { return 0; }
    virtual int verify_topk() const { return 0; }
    /// observe() wants the best tokens at every node of the tree, not of the accepted path alone. A trace
    /// does not have them, so such a head cannot be replayed.
    virtual bool verify_whole_tree() const { return false; }
    /// Before the drafter's catch-up, once per step, with the states of the sequences that draft in it.
    virtual void begin_round(ProposeContext&, std::span<HeadState* const> /*states*/) {}
    /// Before the backbone of a level, in the same rows and order as the propose() that follows it: side-lane
    /// work may start here. embeddings [rows, d]: the token a row starts from; parent_hiddens [rows, d]: the
    /// drafter's hidden it goes on from (level 0 and path heads: the target's feature). The rows are valid
    /// during the call only: the backbone may overwrite them. A later call replaces one without a propose().
    virtual void begin_level(ProposeContext&, Rows<const float> /*embeddings*/,
                             Rows<const float> /*parent_hiddens*/, std::span<HeadState* const> /*states*/) {}
    /// Records phases router, head, topk (child softmax), gather (child remap) as they apply.
    /// states[r] belongs to row r's sequence (null for stateless heads); rows of one sequence are adjacent.
    virtual void propose(ProposeContext& context, Rows<const float> hidden,
                         std::span<HeadState* const> states, int k, Proposal& out) = 0;
    /// What propose() does at `level`, where that is all it does.
    virtual std::optional<DirectHead> direct(int /*level*/) const { return std::nullopt; }
    /// What more than one product is asked of there (engine/heads/head_there.h); null = propose() alone, or
    /// direct().
    virtual HeadThere* there() { return nullptr; }
    virtual void observe(HeadState*, const DraftTree&, const Outcome&) {}
    /// Of a call of `rows` rows at level 0, the most where it depends on them.
    virtual HeadCost cost(int rows) const = 0;
    /// Cost of a call at one draft level of one sequence, for heads whose calls differ; with a state, of the
    /// latest call at that level.
    virtual HeadCost cost_at(const HeadState*, int rows, int /*level*/) const { return cost(rows); }
    /// Is `token` in the active set of this sequence at draft level `level`? Where each row of a level has a
    /// shortlist of its own: in that of any row.
    virtual bool covers(const HeadState*, TokenId token, int level) const = 0;
    /// The same set as a list, for heads that have one at hand; false = ask `covers` token by token.
    virtual bool active_ids(const HeadState*, int /*level*/, std::vector<TokenId>& /*out*/) const {
        return false;
    }
    /// Every logit of the full vocabulary at draft level `level`, -inf outside the support, [rows, vocab]:
    /// slow, for debugging and fitting. Rows are of one sequence; without its state (null) a head whose
    /// support depends on it leaves nothing out.
    virtual void scores(kernels::Exec& exec, Rows<const float> hidden, const HeadState* state, int level,
                        Rows<float> out) = 0;
};

struct HeadParam {
    std::string_view name;
    double default_value = 0;
    double min = 0, max = 0;
    bool our_default = false;  ///< the paper does not state it
    std::string_view help;
    bool list = false;  ///< may be a list per draft level, "16384/8192"; the range holds for each value
    std::string_view choices = {};  ///< "both|ctx|ext": one of these words, the first is the default
};

/// Parsed `--head` text: "fr-spec:v=8192", "fr-spec:v=8192+rdk".
struct HeadSpec {
    std::string id;
    std::map<std::string, std::string, std::less<>> params;
    bool rdk = false;  ///< drafts spread over the tokens that the head lacks (engine/heads/rdk.h)
};
Result<HeadSpec> parse_head_spec(std::string_view text);
std::string to_text(const HeadSpec& spec);

/// What a head is made from beside the model's own weights (docs/FORMATS.md).
enum class ArtefactNeed {
    none,
    ranking,  ///< a token ranking
    fitted,   ///< a head artefact (engine/heads/artefact.h)
    either,   ///< a ranking, or a head artefact that was trained with it
};

/// Files a head may need; paths are resolved by the caller, "" = none.
struct HeadArtefacts {
    std::string ranking_path;        ///< safetensors with `ids` i32 [n], most frequent first
    std::string artefact_path = {};  ///< head artefact of this head
    std::string affinity_path = {};  ///< head artefact `rdk`, for the suffix +rdk
};

struct HeadInfo {
    std::string_view id;
    std::string_view name;
    std::string_view paper;  ///< "FR-Spec, arXiv 2502.14856"
    std::span<const HeadParam> params;
    ArtefactNeed need = ArtefactNeed::none;
    std::string_view artefact;  ///< what it needs, for people; "" = nothing
    std::uint32_t rgb = 0;
    Result<std::unique_ptr<Head>> (*make)(const HeadSpec&, const HeadArtefacts&) = nullptr;
    bool replay_only = false;  ///< needs a recorded text to come: a what-if, not a head to decode with
};
/// The registry: one row per head, in the papers' order.
std::span<const HeadInfo> head_registry();
const HeadInfo* find_head(std::string_view id);
/// Unknown head: the error lists the known ones. Unknown or out-of-range parameter: named, with its range.
Result<std::unique_ptr<Head>> make_head(const HeadSpec& spec, const HeadArtefacts& artefacts);

}  // namespace draftscope
