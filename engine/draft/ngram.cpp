#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <vector>

#include "engine/draft/drafters.h"

namespace draftscope {
namespace {

/// Longest n-gram that may be asked for (our default bound).
constexpr int longest_ngram = 16;

struct NgramLengths {
    int max = 3;
    int min = 1;
};

/// Where each n-gram of the text was last followed by something. Grows with the text.
struct NgramState final : DrafterState {
    explicit NgramState(NgramLengths lengths)
        : follows(static_cast<std::size_t>(lengths.max - lengths.min + 1)) {}
    std::vector<std::unordered_map<std::uint64_t, int>> follows;  ///< per length: hash -> position after it
    int indexed = 0;                                              ///< tokens whose predecessors are indexed
};

std::uint64_t hash_of(std::span<const TokenId> gram) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const TokenId token : gram) {
        hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

std::span<const TokenId> ending_at(std::span<const TokenId> tokens, int end, int n) {
    return tokens.subspan(static_cast<std::size_t>(end - n), static_cast<std::size_t>(n));
}

/// Prompt lookup: the longest suffix of the text that occurred before is looked up, its latest occurrence
/// wins, and what followed there is drafted as a chain.
class NgramDrafter final : public Drafter {
  public:
    explicit NgramDrafter(NgramLengths lengths) : lengths_(lengths) {}

    bool uses_head() const override { return false; }
    bool needs_hidden() const override { return false; }
    std::unique_ptr<DrafterState> make_state(int) const override {
        return std::make_unique<NgramState>(lengths_);
    }
    Status catch_up(DraftContext& context, std::span<DraftJob> jobs) override;
    Status expand(DraftContext& context, std::span<DraftJob> jobs) override;
    std::size_t weight_bytes() const override { return 0; }

  private:
    void index(std::span<const TokenId> tokens, NgramState& state) const;
    /// Position after the latest earlier occurrence of the longest known suffix; -1 when there is none.
    int find_continuation(std::span<const TokenId> tokens, const NgramState& state) const;

    NgramLengths lengths_;
};

void NgramDrafter::index(std::span<const TokenId> tokens, NgramState& state) const {
    const int size = static_cast<int>(tokens.size());
    // An n-gram ending before position p is worth knowing once token p is there to follow it.
    for (int p = std::max(state.indexed, 1); p < size; ++p) {
        for (int n = lengths_.min; n <= std::min(lengths_.max, p); ++n) {
            state.follows[static_cast<std::size_t>(n - lengths_.min)][hash_of(ending_at(tokens, p, n))] = p;
        }
    }
    state.indexed = size;
}

int NgramDrafter::find_continuation(std::span<const TokenId> tokens, const NgramState& state) const {
    const int size = static_cast<int>(tokens.size());
    for (int n = std::min(lengths_.max, size - 1); n >= lengths_.min; --n) {
        const auto& follows = state.follows[static_cast<std::size_t>(n - lengths_.min)];
        const std::span<const TokenId> suffix = ending_at(tokens, size, n);
        const auto found = follows.find(hash_of(suffix));
        if (found == follows.end()) continue;
        if (std::ranges::equal(ending_at(tokens, found->second, n), suffix)) return found->second;
    }
    return -1;
}

Status NgramDrafter::catch_up(DraftContext& context, std::span<DraftJob> jobs) {
    PhaseScope scope(context.phases, Phase::backbone, 0, static_cast<int>(jobs.size()));
    for (DraftJob& job : jobs) {
        auto& state = static_cast<NgramState&>(*job.state);
        if (state.indexed > static_cast<int>(job.tokens.size())) state = NgramState(lengths_);
        index(job.tokens, state);
    }
    return {};
}

Status NgramDrafter::expand(DraftContext& context, std::span<DraftJob> jobs) {
    for (DraftJob& job : jobs) {
        if (job.tokens.empty()) return failed("ngram: a sequence without tokens has no root");
        {
            PhaseScope scope(context.phases, Phase::backbone, 1, 1);
            job.out = DraftTree::with_root(job.tokens.back());
            job.head_rows.clear();
            const int size = static_cast<int>(job.tokens.size());
            const int from = find_continuation(job.tokens, static_cast<const NgramState&>(*job.state));
            const int drafts = from < 0 ? 0 : std::min(job.tree.levels(), job.tree.nodes - 1);
            for (int i = 0; i < drafts; ++i) {
                // A repetition that reaches the end of the text goes on into its own drafts.
                const int p = from + i;
                const TokenId token = p < size ? job.tokens[static_cast<std::size_t>(p)]
                                               : job.out.tokens[static_cast<std::size_t>(p - size + 1)];
                job.out.add(token, i, 0.0f);
            }
        }
        PhaseScope scope(context.phases, Phase::rerank, 0, job.out.size() - 1);
        DS_TRY(job.out.finish());
    }
    if (context.watcher != nullptr) {
        for (DraftJob& job : jobs) {
            context.watcher->level_done(job.sequence, 0, [&] { return job.out; });
        }
    }
    return {};
}

Status set_length(std::string_view text, NgramLengths& lengths) {
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
    if (name != "max" && name != "min") {
        return bad_input("drafter 'ngram' has no parameter '{}'; it has max and min", name);
    }
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > longest_ngram) {
        return bad_input("drafter 'ngram': {}={} is not a whole number in 1..{}", name, value, longest_ngram);
    }
    (name == "max" ? lengths.max : lengths.min) = number;
    return {};
}

}  // namespace

Result<std::unique_ptr<Drafter>> make_ngram(const std::string& path, const Target&, kernels::Exec&) {
    NgramLengths lengths;
    for (std::string_view rest = path; !rest.empty();) {
        const std::size_t comma = rest.find(',');
        DS_TRY(set_length(rest.substr(0, comma), lengths));
        rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    if (lengths.min > lengths.max) {
        return bad_input("drafter 'ngram': min={} is above max={}", lengths.min, lengths.max);
    }
    return std::unique_ptr<Drafter>(std::make_unique<NgramDrafter>(lengths));
}

}  // namespace draftscope
