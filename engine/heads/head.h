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
};

struct ProposeContext {
    kernels::Exec& exec;
    PhaseRecorder& phases;
    int level = 0;  ///< 0 = catch-up row
};

/// Outcome of verification as a head sees it.
struct Outcome {
    std::span<const int> accepted_path;  ///< node indices, root first
    TokenId bonus = no_token;
    std::span<const TokenId> path_topk;  ///< [path, top_k] target ids at the path's nodes, best first
    int top_k = 0;
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
    virtual void begin_round(HeadState*) {}
    /// Before the backbone of a level: side-lane work may start here.
    virtual void begin_level(HeadState*, Rows<const float> /*embeddings*/,
                             Rows<const float> /*parent_hiddens*/, int /*level*/) {}
    /// Records phases router, head, topk (child softmax), gather (child remap) as they apply.
    /// states[r] belongs to row r's sequence (null for stateless heads).
    virtual void propose(ProposeContext& context, Rows<const float> hidden,
                         std::span<HeadState* const> states, int k, Proposal& out) = 0;
    virtual void observe(HeadState*, const DraftTree&, const Outcome&) {}
    virtual HeadCost cost(int rows) const = 0;
    /// Cost of a call at one draft level of one sequence, for heads whose calls differ.
    virtual HeadCost cost_at(const HeadState*, int rows, int /*level*/) const { return cost(rows); }
    /// Is `token` in the active set of this sequence at draft level `level`?
    virtual bool covers(const HeadState*, TokenId token, int level) const = 0;
    /// The same set as a list, for heads that have one at hand; false = ask `covers` token by token.
    virtual bool active_ids(const HeadState*, int /*level*/, std::vector<TokenId>& /*out*/) const {
        return false;
    }
    /// Every logit of the full vocabulary, -inf outside the support: slow, for debugging and fitting.
    virtual void scores(kernels::Exec& exec, Rows<const float> hidden, Rows<float> out) = 0;
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

/// Parsed `--head` text: "fr-spec:v=8192".
struct HeadSpec {
    std::string id;
    std::map<std::string, std::string, std::less<>> params;
};
Result<HeadSpec> parse_head_spec(std::string_view text);
std::string to_text(const HeadSpec& spec);

/// Files a head may need; paths are resolved by the caller.
struct HeadArtefacts {
    std::string ranking_path;  ///< safetensors with `ids` i32 [n], most frequent first; "" = none
};

struct HeadInfo {
    std::string_view id;
    std::string_view name;
    std::string_view paper;  ///< "FR-Spec, arXiv 2502.14856"
    std::span<const HeadParam> params;
    std::string_view artefact;  ///< what it needs, for people; "" = nothing
    std::uint32_t rgb = 0;
    Result<std::unique_ptr<Head>> (*make)(const HeadSpec&, const HeadArtefacts&) = nullptr;
};
/// The registry: one row per head, in the papers' order.
std::span<const HeadInfo> head_registry();
const HeadInfo* find_head(std::string_view id);
/// Unknown head: the error lists the known ones. Unknown or out-of-range parameter: named, with its range.
Result<std::unique_ptr<Head>> make_head(const HeadSpec& spec, const HeadArtefacts& artefacts);

}  // namespace draftscope
