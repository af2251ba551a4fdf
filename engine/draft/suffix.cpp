#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/draft/drafter_params.h"
#include "engine/draft/registry.h"
#include "engine/draft/suffix_trie.h"
#include "engine/draft/text_drafter.h"

namespace draftscope {
namespace {

/// vLLM's defaults, except `answers`, which is 10000 there.
struct SuffixOptions {
    double depth = 24;      ///< tokens of the longest string that is counted
    double factor = 1;      ///< drafts per matched token
    double offset = 0;      ///< drafts beyond those
    double min_prob = 0.1;  ///< lowest probability of a drafted path
    double responses = 0;   ///< answers of the run that are kept besides the text itself

    /// Upper bound of the drafts behind a match of `matched` tokens.
    int max_drafts(int matched) const { return static_cast<int>(matched * factor + offset + 1e-6); }
};

/// What one trie proposes: nodes in the order of drafting, with the indices of their parents, -1 = root.
struct Proposal {
    std::vector<TokenId> tokens;
    std::vector<int> parents;
    std::vector<float> probs;  ///< of the paths from the root
    float score = 0;           ///< their sum: the number of drafts that are expected to be right

    void clear() {
        tokens.clear();
        parents.clear();
        probs.clear();
        score = 0;
    }
    void add(TokenId token, int parent, float prob) {
        tokens.push_back(token);
        parents.push_back(parent);
        probs.push_back(prob);
        score += prob;
    }
};

/// One draft from a trie at a node: the best path, or the best nodes by path probability. Probabilities are
/// floats, as in ArcticInference, so that the same paths reach `min_prob`.
class Search {
  public:
    explicit Search(double min_prob) : min_prob_(static_cast<float>(min_prob)) {}
    void path(const SuffixTrie& trie, int node, int drafts, Proposal& out) const {
        float prob = 1;
        for (int i = 0; i < drafts; ++i) {
            const int next = trie.first_child(node);
            if (next < 0) return;
            prob *= static_cast<float>(trie.count(next)) / static_cast<float>(trie.count(node));
            if (prob < min_prob_) return;
            out.add(trie.token(next), i - 1, prob);
            node = next;
        }
    }
    void tree(const SuffixTrie& trie, int node, int drafts, int levels, Proposal& out) {
        queue_.clear();
        num_found_ = 0;
        push_children(trie, {1, 0, node, -1, 0});
        while (!queue_.empty() && static_cast<int>(out.tokens.size()) < drafts) {
            std::pop_heap(queue_.begin(), queue_.end());
            Candidate best = queue_.back();
            queue_.pop_back();
            out.add(trie.token(best.node), best.parent, best.prob);
            best.parent = static_cast<int>(out.tokens.size()) - 1;
            if (best.level < levels) push_children(trie, best);
        }
    }

  private:
    struct Candidate {
        float prob = 0;
        int order = 0;  ///< equal probabilities in the order of being found
        int node = 0;
        int parent = -1;  ///< index in the proposal
        int level = 0;
        bool operator<(const Candidate& other) const {
            return prob != other.prob ? prob < other.prob : order > other.order;
        }
    };
    void push_children(const SuffixTrie& trie, const Candidate& of) {
        for (int next = trie.first_child(of.node); next >= 0; next = trie.next_sibling(next)) {
            const auto count = static_cast<float>(trie.count(next)),
                       all = static_cast<float>(trie.count(of.node));
            const float prob = count == all ? of.prob : of.prob * count / all;
            if (prob < min_prob_) return;
            queue_.push_back({prob, ++num_found_, next, of.parent, of.level + 1});
            std::push_heap(queue_.begin(), queue_.end());
        }
    }

    float min_prob_;
    std::vector<Candidate> queue_;
    int num_found_ = 0;  ///< candidates of this draft
};

/// The answers of a run, the running ones included.
class Responses {
  public:
    Responses(int depth, int limit) : trie(depth, 1024), limit_(limit) {}
    SuffixTrie trie;

    /// Begins an answer and forgets the oldest beyond the limit; returns its number.
    long begin() {
        while (static_cast<int>(texts_.size()) >= limit_) {
            trie.remove(texts_.front());
            texts_.erase(texts_.begin());
            ++first_;
        }
        texts_.emplace_back();
        return first_ + static_cast<long>(texts_.size()) - 1;
    }
    /// Appends to an answer; one that was forgotten stays so.
    void append(long response, SuffixTrie::Ends& ends, TokenId token) {
        if (response < first_) return;
        trie.append(ends, token);
        texts_[response - first_].push_back(token);
    }

  private:
    int limit_;
    long first_ = 0;  ///< number of the oldest answer
    std::vector<std::vector<TokenId>> texts_;
};

struct SuffixState final : DrafterState {
    SuffixState(int depth, int tokens) : trie(depth, tokens) { ends.reserve(depth); }
    SuffixTrie trie;        ///< of the text itself
    SuffixTrie::Ends ends;  ///< in `trie`
    int counted = 0;        ///< tokens in `trie`
    long response = -1;     ///< number in Responses; -1 = not begun
    int num_added = 0;      ///< tokens of the text that are prompt or in Responses
    SuffixTrie::Ends response_ends;
};

/// Suffix decoding (arXiv 2411.04975): drafts what most often followed the last words, in the text so far and
/// in answers before it. The longer the match and the surer its continuation, the longer the draft.
class SuffixDrafter final : public TextDrafter {
  public:
    explicit SuffixDrafter(SuffixOptions options)
        : TextDrafter("suffix",
                      {.uses_head = false, .nested_trees = false, .order_matters = options.responses > 0},
                      options.max_drafts(static_cast<int>(options.depth) - 1)),
          options_(options),
          responses_(static_cast<int>(options.depth), static_cast<int>(options.responses)),
          search_(options.min_prob) {}

    void begin_run() override {
        responses_ = Responses(static_cast<int>(options_.depth), static_cast<int>(options_.responses));
    }
    std::unique_ptr<DrafterState> make_state(int slots, bool) const override {
        return std::make_unique<SuffixState>(static_cast<int>(options_.depth), slots);
    }

  private:
    void read(DraftJob& job) override { count(job.tokens, static_cast<SuffixState&>(*job.state)); }
    Status draft(PhaseRecorder& phases, DraftJob& job) override;
    void count(std::span<const TokenId> tokens, SuffixState& state);
    /// Keeps in best_ what the trie proposes if its score is higher, or equal with a longer match.
    void propose(const SuffixTrie& trie, std::span<const TokenId> tokens, const TreeSpec& tree);

    SuffixOptions options_;
    Responses responses_;
    Search search_;
    Proposal best_, candidate_;
};

void SuffixDrafter::count(std::span<const TokenId> tokens, SuffixState& state) {
    const int size = static_cast<int>(tokens.size());
    if (state.counted > size) {
        state.trie.clear();
        state.ends.clear();
        state.counted = 0;
    }
    for (; state.counted < size; ++state.counted) state.trie.append(state.ends, tokens[state.counted]);
    if (options_.responses == 0) return;
    if (state.response < 0) {
        // The first round's text is the prompt and the first token of the answer.
        state.response = responses_.begin();
        state.num_added = size - 1;
    }
    for (; state.num_added < size; ++state.num_added)
        responses_.append(state.response, state.response_ends, tokens[state.num_added]);
}

void SuffixDrafter::propose(const SuffixTrie& trie, std::span<const TokenId> tokens, const TreeSpec& tree) {
    const int max_drafts = tree.topk > 1 ? tree.nodes - 1 : std::min(tree.levels(), tree.nodes - 1);
    const int longest = std::min(trie.depth(), static_cast<int>(tokens.size())) - 1;
    for (int matched = 1; matched <= longest; ++matched) {
        const int node = trie.find(tokens.last(matched));
        if (node < 0) return;
        const int drafts = std::clamp(options_.max_drafts(matched), 0, max_drafts);
        candidate_.clear();
        if (tree.topk > 1)
            search_.tree(trie, node, drafts, tree.levels(), candidate_);
        else
            search_.path(trie, node, drafts, candidate_);
        if (candidate_.score >= best_.score) std::swap(candidate_, best_);
    }
}

Status SuffixDrafter::draft(PhaseRecorder& phases, DraftJob& job) {
    PhaseScope scope(phases, Phase::backbone, 1, 1);
    auto& state = static_cast<SuffixState&>(*job.state);
    best_.clear();
    // An equal score goes to the text itself, so it comes last.
    if (options_.responses > 0) propose(responses_.trie, job.tokens, job.tree);
    propose(state.trie, job.tokens, job.tree);
    start_tree(job);
    job.score = best_.score;
    for (std::size_t i = 0; i < best_.tokens.size(); ++i) {
        const int parent = best_.parents[i];
        const float above = parent < 0 ? 1.0f : best_.probs[parent];
        job.out.add(best_.tokens[i], parent + 1, std::log(best_.probs[i] / above));
    }
    return job.out.finish();
}

/// `path` is "" or parameters: "depth=24,factor=1,offset=0,min_prob=0.1,answers=0".
Result<std::unique_ptr<Drafter>> make_suffix(const std::string& path, const Target&, kernels::Backend&) {
    SuffixOptions options;
    const DrafterParam params[] = {{"depth", 2, 64, &options.depth},
                                   {"factor", 0, 16, &options.factor, false},
                                   {"offset", -64, 64, &options.offset, false},
                                   {"min_prob", 0, 1, &options.min_prob, false},
                                   {"answers", 0, 100000, &options.responses}};
    DS_TRY(read_params("suffix", path, params));
    return std::unique_ptr<Drafter>(std::make_unique<SuffixDrafter>(options));
}

}  // namespace

DrafterInfo describe_suffix() {
    return {
        .id = "suffix",
        .name = "Suffix decoding",
        .paper = "SuffixDecoding, arXiv 2411.04975",
        .help =
            "drafts what most often followed the last words; suffix:depth=24,factor=1,offset=0,min_prob=0.1,"
            "answers=0 sets the longest match, drafts per matched token and beyond, the lowest probability "
            "of "
            "a path, and how many earlier answers of the run are searched, too (the order of prompts then "
            "matters)",
        .uses_head = false,
        .needs_weights = false,
        .make = make_suffix};
}

}  // namespace draftscope
