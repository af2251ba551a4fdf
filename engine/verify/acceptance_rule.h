#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/verify/target_logits.h"
#include "engine/verify/verify.h"

/// Acceptance rules: one file per rule, one line in the registry.
namespace draftscope {

class AcceptanceRule;
using RulePtr = std::shared_ptr<const AcceptanceRule>;

/// How the text decoded under a rule relates to the target's text.
enum class Losslessness {
    exact,         ///< equals autoregressive decoding, token for token
    distribution,  ///< follows the target's distribution, with other random numbers
    lossy,         ///< follows another distribution
};
/// Returns the word that captures store: "exact", "distribution" or "lossy".
std::string_view to_text(Losslessness losslessness);

/// Registry entry of a rule.
struct RuleInfo {
    std::string_view id;
    std::span<const std::string_view> aliases = {};  ///< other names that --verify takes
    std::string_view parameters = {};  ///< with their defaults, "epsilon=0.09,delta=0.3"; "" = none
    std::string_view summary = {};     ///< for --help and the window
    Losslessness losslessness = Losslessness::lossy;
    bool own_threshold = false;  ///< replaces --top-p and --top-k, which must not be given
    /// `parameters` are the texts between commas, empty without a colon. Null for simulated acceptance, which
    /// --verify does not offer.
    Result<RulePtr> (*make)(std::span<const std::string_view> parameters) = nullptr;
    bool is_simulated() const { return make == nullptr; }
};

/// What a rule needs of the drafts and of the target's logits before its ops.
struct RuleNeeds {
    bool sampled_drafts = false;  ///< drafts sampled from the head's distribution, not its best tokens
    bool draft_uniforms = false;  ///< random numbers for the acceptance of each draft
    int best_tokens = 0;          ///< number of best tokens of each row, if choices are sampled
    bool draft_logits = false;    ///< logit of each draft in its parent's row
};

/// What a rule's ops work on: a step whose trees are drafted and whose logits are computed.
struct VerifyContext {
    kernels::Backend& backend;
    RoundStep& step;
    const TargetLogits& logits;
    /// [requested_count] values of 4 bytes that the rule's ops leave in the backend's memory, as
    /// LogitsResult::by_rule later; null = none.
    const void* requested = nullptr;
    std::size_t requested_count = 0;
};

/// Result of verifying one tree.
struct Acceptance {
    std::vector<int> path;     ///< accepted nodes, root first; accepted drafts = path.size() - 1
    TokenId bonus = no_token;  ///< emitted after the last accepted node
};

/// The results about the target's logits after the nodes of a tree.
struct TreeLogits {
    const Sampling& sampling;
    /// The target's choice after each node. A rule replaces the choices that it does not emit.
    std::span<TargetSample> choices;
    const LogitsResult& results;
    int first_row = 0;  ///< row of the root in `results`

    /// Returns the logit of a node's token in its parent's row; not for the root.
    float draft_logit(int node) const;
    /// Sets the choice after `node` to `token`, whose logit in the node's row is `logit`.
    void emit(int node, TokenId token, float logit) const;
    /// Emits the drafts along an accepted path. The choice after its last node stays.
    void emit_drafts(const DraftTree& tree, std::span<const int> path) const;
};

/// Decides which drafts of a tree are accepted, by ops on the backend. Stateless.
class AcceptanceRule {
  public:
    explicit AcceptanceRule(const RuleInfo& info) : info_(info) {}
    virtual ~AcceptanceRule() = default;

    const RuleInfo& info() const { return info_; }
    /// Returns the canonical text, which make_rule() parses to an equal rule.
    virtual std::string text() const { return std::string(info_.id); }
    virtual RuleNeeds needs() const { return {}; }
    /// Returns the drafts that may be accepted of a path with `levels` drafts. `root` is that of the token
    /// after the root.
    virtual int max_accepted(const Sampling&, const TokenPosition& /*root*/, int levels) const {
        return levels;
    }
    /// Enqueues the ops that write the accepted path of every tree, RoundLayout::path(). The caller holds
    /// Backend::submit_mutex() and checks RoundStep::memory afterwards. By default, a path follows the
    /// target's choices.
    virtual void enqueue(VerifyContext& context) const;
    /// Sets `out` to the accepted `path` and its bonus, and the choices along the path to what is emitted.
    /// `out` keeps its memory.
    void accept(const DraftTree& tree, const TreeLogits& logits, std::span<const int> path,
                Acceptance& out) const;

  protected:
    /// Replaces choices that are not emitted after an accepted path.
    virtual void emit(const DraftTree&, const TreeLogits&, std::span<const int> /*path*/) const {}
    /// Enqueues paths whose choice of row r is choices[r * stride]; null accepts the first children.
    static void follow(VerifyContext& context, const std::int32_t* choices, std::int64_t stride);

  private:
    const RuleInfo& info_;
};

/// All rules in the order of --help.
std::span<const RuleInfo* const> rule_registry();
/// Returns the rule that --verify offers under this id or alias; null if there is none.
const RuleInfo* find_rule(std::string_view name);
/// Parses `--verify`: "match", "pq", "typical", "typical:epsilon=0.09,delta=0.3".
Result<RulePtr> make_rule(std::string_view text);

/// Exact match: follows the target's choices.
RulePtr match_rule();
/// Returns the rule in effect: at temperature 0, every rule that --verify offers is greedy exact match.
RulePtr rule_in_effect(RulePtr rule, double temperature);

}  // namespace draftscope
