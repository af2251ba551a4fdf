#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/parse.h"
#include "engine/draft/registry.h"

namespace draftscope {
namespace {

/// Upper bound of the n-gram length (our default).
constexpr int max_ngram = 16;

/// Upper bound of `window`: exceeds every context.
constexpr int max_window = 1 << 24;

struct NgramOptions {
    int max = 3;      ///< longest suffix to look up
    int min = 1;      ///< shortest suffix to look up
    int window = 0;   ///< a match must lie in this many latest tokens; 0 = the whole text
    int backoff = 1;  ///< 1: shorten an unknown suffix down to min; 0: look up max only
};

/// Hash table from n-gram to the latest position after it. One block of memory for the text length given to
/// the constructor; a longer text reallocates it.
class PositionTable {
  public:
    explicit PositionTable(int tokens)
        : entries_(std::bit_ceil(2 * static_cast<std::size_t>(std::max(tokens, 8)))) {}
    /// Requires position > 0.
    void set(std::uint64_t hash, int position) {
        Entry& entry = entries_[find_entry(hash)];
        used_ += entry.position == 0 ? 1 : 0;
        entry = {hash, position};
        if (2 * used_ > entries_.size()) grow();
    }
    /// Returns 0 if the hash is absent.
    int at(std::uint64_t hash) const { return entries_[find_entry(hash)].position; }
    void clear() {
        std::fill(entries_.begin(), entries_.end(), Entry());
        used_ = 0;
    }

  private:
    struct Entry {
        std::uint64_t hash = 0;
        int position = 0;
    };
    /// Returns the entry of the hash, or the free entry for it. A free entry always exists.
    std::size_t find_entry(std::uint64_t hash) const {
        const std::size_t mask = entries_.size() - 1;
        std::size_t at = static_cast<std::size_t>(hash) & mask;
        while (entries_[at].position != 0 && entries_[at].hash != hash) at = (at + 1) & mask;
        return at;
    }
    void grow() {
        const std::vector<Entry> before = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
        for (const Entry& entry : before)
            if (entry.position != 0) entries_[find_entry(entry.hash)] = entry;
    }

    std::vector<Entry> entries_;
    std::size_t used_ = 0;
};

/// The latest occurrence of each n-gram of the text that has a successor.
struct NgramState final : DrafterState {
    NgramState(NgramOptions options, int tokens)
        : follows(options.max - options.min + 1, PositionTable(tokens)) {}
    std::vector<PositionTable> follows;  ///< per length: the position after the n-gram
    int indexed = 0;                     ///< number of tokens whose preceding n-grams are indexed

    void forget() {
        for (PositionTable& positions : follows) positions.clear();
        indexed = 0;
    }
};

std::uint64_t ngram_hash(std::span<const TokenId> gram) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const TokenId token : gram) {
        hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

std::span<const TokenId> ending_at(std::span<const TokenId> tokens, int end, int n) {
    return tokens.subspan(end - n, n);
}

/// Prompt lookup. Looks up the longest suffix of the text that occurred before, and drafts what followed its
/// latest occurrence as a chain.
class NgramDrafter final : public Drafter {
  public:
    explicit NgramDrafter(NgramOptions options) : Drafter({.uses_head = false}), options_(options) {}

    std::unique_ptr<DrafterState> make_state(int slots, bool) const override {
        return std::make_unique<NgramState>(options_, slots);
    }
    Status begin(DraftContext& context, std::span<DraftJob> jobs) override;

  private:
    void index(std::span<const TokenId> tokens, NgramState& state) const;
    Status draft(PhaseRecorder& phases, DraftJob& job) const;
    /// Returns the position after the latest earlier occurrence of the longest known suffix, or -1.
    int find_continuation(std::span<const TokenId> tokens, const NgramState& state) const;

    NgramOptions options_;
};

void NgramDrafter::index(std::span<const TokenId> tokens, NgramState& state) const {
    const int size = static_cast<int>(tokens.size());
    // An n-gram that ends before position p is only useful once token p follows it.
    for (int p = std::max(state.indexed, 1); p < size; ++p) {
        for (int n = options_.min; n <= std::min(options_.max, p); ++n) {
            state.follows[n - options_.min].set(ngram_hash(ending_at(tokens, p, n)), p);
        }
    }
    state.indexed = size;
}

int NgramDrafter::find_continuation(std::span<const TokenId> tokens, const NgramState& state) const {
    const int size = static_cast<int>(tokens.size());
    for (int n = std::min(options_.max, size - 1); n >= options_.min; --n) {
        const std::span<const TokenId> suffix = ending_at(tokens, size, n);
        const int found = state.follows[n - options_.min].at(ngram_hash(suffix));
        const bool in_reach = found > 0 && (options_.window == 0 || size - found <= options_.window);
        if (in_reach && std::ranges::equal(ending_at(tokens, found, n), suffix)) return found;
        if (options_.backoff == 0) break;
    }
    return -1;
}

Status NgramDrafter::begin(DraftContext& context, std::span<DraftJob> jobs) {
    for (const DraftJob& job : jobs)
        if (job.tokens.empty()) return failed("ngram: a sequence without tokens has no root");
    {
        PhaseScope scope(context.phases, Phase::backbone, 0, static_cast<int>(jobs.size()));
        for (DraftJob& job : jobs) {
            auto& state = static_cast<NgramState&>(*job.state);
            if (state.indexed > static_cast<int>(job.tokens.size())) state.forget();
            index(job.tokens, state);
        }
    }
    for (DraftJob& job : jobs) DS_TRY(draft(context.phases, job));
    if (context.observer == nullptr) return {};
    for (DraftJob& job : jobs) context.observer->level_done(job.sequence, 0, [&] { return job.out; });
    return {};
}

Status NgramDrafter::draft(PhaseRecorder& phases, DraftJob& job) const {
    {
        PhaseScope scope(phases, Phase::backbone, 1, 1);
        job.out.reset(job.tokens.back(), job.tree.nodes);
        job.rows_per_call.clear();
        job.is_known = true;
        const int size = static_cast<int>(job.tokens.size());
        const int from = find_continuation(job.tokens, static_cast<const NgramState&>(*job.state));
        const int drafts = from < 0 ? 0 : std::min(job.tree.levels(), job.tree.nodes - 1);
        for (int i = 0; i < drafts; ++i) {
            // A repetition that reaches the end of the text continues with its own drafts.
            const int p = from + i;
            const TokenId token = p < size ? job.tokens[p] : job.out.tokens[p - size + 1];
            job.out.add(token, i, 0.0f);
        }
    }
    PhaseScope scope(phases, Phase::rerank, 0, job.out.size() - 1);
    return job.out.finish();
}

struct NgramField {
    std::string_view name;
    int min_value, max_value;
    int NgramOptions::*value;
};
constexpr NgramField fields[] = {
    {"max", 1, max_ngram, &NgramOptions::max},
    {"min", 1, max_ngram, &NgramOptions::min},
    {"window", 0, max_window, &NgramOptions::window},
    {"backoff", 0, 1, &NgramOptions::backoff},
};

Status set_option(std::string_view text, NgramOptions& options) {
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
    for (const NgramField& field : fields) {
        if (field.name != name) continue;
        const auto number = parse_number<int>(value);
        if (!number || *number < field.min_value || *number > field.max_value)
            return bad_input("drafter 'ngram': {}={} is not a whole number in {}..{}", name, value,
                             field.min_value, field.max_value);
        options.*field.value = *number;
        return {};
    }
    return bad_input("drafter 'ngram' has no parameter '{}'; it has max, min, window and backoff", name);
}

/// `path` is "" or parameters: "max=3,min=1,window=0,backoff=1".
Result<std::unique_ptr<Drafter>> make_ngram(const std::string& path, const Target&, kernels::Backend&) {
    NgramOptions options;
    for (std::string_view rest = path; !rest.empty();) {
        const std::size_t comma = rest.find(',');
        DS_TRY(set_option(rest.substr(0, comma), options));
        rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    if (options.min > options.max) {
        return bad_input("drafter 'ngram': min={} is above max={}", options.min, options.max);
    }
    return std::unique_ptr<Drafter>(std::make_unique<NgramDrafter>(options));
}

}  // namespace

DrafterInfo describe_ngram() {
    return {.id = "ngram",
            .name = "Prompt lookup",
            .help =
                "copies the continuation of an earlier occurrence of the last words; "
                "ngram:max=3,min=1,window=0,backoff=1 sets the lengths to match, the search window in tokens "
                "(0 = all) and whether an unknown n-gram is shortened",
            .uses_head = false,
            .chains_only = true,
            .needs_weights = false,
            .make = make_ngram};
}

}  // namespace draftscope
